// Stored weights to floats: scalars and the block types of GGUF, value for value what
// quant/ of the engine decodes (NaN payloads aside).
//
// Each type is a struct with the layout of a block and three functions: the unsigned
// `code` of an element, the `scale` of a sub-block and, unless the type is centred, the
// `offset` of a sub-block. A value is `scale * (code - kZero)` or `scale * code - offset`,
// every operation rounded once (`value`, `decode`). Blocks are read by bytes and aligned
// halves, so a block may lie at any multiple of its size from an even address.
#pragma once

#include <stdint.h>

namespace ft::quant {

__device__ inline float half_to_float(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

__device__ inline float bfloat_to_float(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

// The f16 at an even offset of a block of even size.
__device__ inline float half_at(const uint8_t *block, int at) {
  return half_to_float(*reinterpret_cast<const uint16_t *>(block + at));
}

// Element `i` of `2 * n` nibbles in `n` bytes, the low ones first.
__device__ inline int nibble(const uint8_t *packed, int i, int n) {
  return i < n ? packed[i] & 15 : packed[i - n] >> 4;
}

// Element `i` of 64 nibbles per 32 bytes.
__device__ inline int nibble_in_runs(const uint8_t *packed, int i) {
  return nibble(packed + i / 64 * 32, i % 64, 32);
}

// Bit `i` of bytes, lowest first.
__device__ inline int bit(const uint8_t *packed, int i) { return packed[i / 8] >> (i % 8) & 1; }

// Element `i = 128 h + 32 j + l` of a super-block's 2-bit fields: bits `2 j` of byte
// `32 h + l`.
__device__ inline int two_bits(const uint8_t *packed, int i) {
  return packed[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
}

// The six-bit scale of sub-block `sub` in the 12 bytes that Q4_K and Q5_K have for it.
__device__ inline int six_bit_scale(const uint8_t *packed, int sub) {
  if (sub < 4) return packed[sub] & 63;
  return (packed[sub + 4] & 15) | (packed[sub - 4] >> 6 << 4);
}

// The six-bit minimum beside it.
__device__ inline int six_bit_min(const uint8_t *packed, int sub) {
  if (sub < 4) return packed[sub + 4] & 63;
  return packed[sub + 4] >> 4 | (packed[sub] >> 6 << 4);
}

// The IQ4 values -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113, plus 127, four
// to a word: no table in memory.
__device__ inline int iq4_code(int index) {
  const uint32_t low = index & 4 ? 0x75695C4Eu : 0x3E2C1700u;
  const uint32_t high = index & 4 ? 0xF0D8C4B4u : 0xA5988C80u;
  return (index & 8 ? high : low) >> (index % 4 * 8) & 255;
}

// Doubled E2M1 (0 .5 1 1.5 2 3 4 6 and their negatives) plus 12. Both zeros are 12.
__device__ inline int e2m1_code(int index) {
  const uint32_t magnitudes = index & 4 ? 0xC864u : 0x3210u;
  const int magnitude = magnitudes >> (index % 4 * 4) & 15;
  return index & 8 ? 12 - magnitude : 12 + magnitude;
}

struct Q4_0 {
  static constexpr int kBytes = 18, kElements = 32, kSub = 32, kZero = 8;
  static constexpr bool kCentred = true;
  __device__ static int code(const uint8_t *block, int i) { return nibble(block + 2, i, 16); }
  __device__ static float scale(const uint8_t *block, int) { return half_at(block, 0); }
};

struct Q4_1 {
  static constexpr int kBytes = 20, kElements = 32, kSub = 32, kZero = 0;
  static constexpr bool kCentred = false;
  __device__ static int code(const uint8_t *block, int i) { return nibble(block + 4, i, 16); }
  __device__ static float scale(const uint8_t *block, int) { return half_at(block, 0); }
  __device__ static float offset(const uint8_t *block, int) { return -half_at(block, 2); }
};

struct Q5_0 {
  static constexpr int kBytes = 22, kElements = 32, kSub = 32, kZero = 16;
  static constexpr bool kCentred = true;
  __device__ static int code(const uint8_t *block, int i) {
    return nibble(block + 6, i, 16) | bit(block + 2, i) << 4;
  }
  __device__ static float scale(const uint8_t *block, int) { return half_at(block, 0); }
};

struct Q5_1 {
  static constexpr int kBytes = 24, kElements = 32, kSub = 32, kZero = 0;
  static constexpr bool kCentred = false;
  __device__ static int code(const uint8_t *block, int i) {
    return nibble(block + 8, i, 16) | bit(block + 4, i) << 4;
  }
  __device__ static float scale(const uint8_t *block, int) { return half_at(block, 0); }
  __device__ static float offset(const uint8_t *block, int) { return -half_at(block, 2); }
};

struct Q8_0 {
  static constexpr int kBytes = 34, kElements = 32, kSub = 32, kZero = 128;
  static constexpr bool kCentred = true;
  __device__ static int code(const uint8_t *block, int i) { return block[2 + i] ^ 0x80; }
  __device__ static float scale(const uint8_t *block, int) { return half_at(block, 0); }
};

struct Q2_K {
  static constexpr int kBytes = 84, kElements = 256, kSub = 16, kZero = 0;
  static constexpr bool kCentred = false;
  __device__ static int code(const uint8_t *block, int i) { return two_bits(block + 16, i); }
  __device__ static float scale(const uint8_t *block, int sub) {
    return __fmul_rn(half_at(block, 80), static_cast<float>(block[sub] & 15));
  }
  __device__ static float offset(const uint8_t *block, int sub) {
    return __fmul_rn(half_at(block, 82), static_cast<float>(block[sub] >> 4));
  }
};

struct Q3_K {
  static constexpr int kBytes = 110, kElements = 256, kSub = 16, kZero = 4;
  static constexpr bool kCentred = true;
  __device__ static int code(const uint8_t *block, int i) {
    return two_bits(block + 32, i) | (block[i % 32] >> (i / 32) & 1) << 2;
  }
  __device__ static float scale(const uint8_t *block, int sub) {
    const uint8_t *packed = block + 96;
    const int low = packed[sub % 8] >> (sub / 8 * 4) & 15;
    const int high = packed[8 + sub % 4] >> (sub / 4 * 2) & 3;
    return __fmul_rn(half_at(block, 108), static_cast<float>((low | high << 4) - 32));
  }
};

struct Q4_K {
  static constexpr int kBytes = 144, kElements = 256, kSub = 32, kZero = 0;
  static constexpr bool kCentred = false;
  __device__ static int code(const uint8_t *block, int i) { return nibble_in_runs(block + 16, i); }
  __device__ static float scale(const uint8_t *block, int sub) {
    return __fmul_rn(half_at(block, 0), static_cast<float>(six_bit_scale(block + 4, sub)));
  }
  __device__ static float offset(const uint8_t *block, int sub) {
    return __fmul_rn(half_at(block, 2), static_cast<float>(six_bit_min(block + 4, sub)));
  }
};

struct Q5_K {
  static constexpr int kBytes = 176, kElements = 256, kSub = 32, kZero = 0;
  static constexpr bool kCentred = false;
  __device__ static int code(const uint8_t *block, int i) {
    return nibble_in_runs(block + 48, i) | (block[16 + i % 32] >> (i / 32) & 1) << 4;
  }
  __device__ static float scale(const uint8_t *block, int sub) { return Q4_K::scale(block, sub); }
  __device__ static float offset(const uint8_t *block, int sub) {
    return Q4_K::offset(block, sub);
  }
};

struct Q6_K {
  static constexpr int kBytes = 210, kElements = 256, kSub = 16, kZero = 32;
  static constexpr bool kCentred = true;
  __device__ static int code(const uint8_t *block, int i) {
    return nibble(block + i / 128 * 64, i % 128, 64) | two_bits(block + 128, i) << 4;
  }
  __device__ static float scale(const uint8_t *block, int sub) {
    const int factor = static_cast<int8_t>(block[192 + sub]);
    return __fmul_rn(half_at(block, 208), static_cast<float>(factor));
  }
};

struct IQ4_NL {
  static constexpr int kBytes = 18, kElements = 32, kSub = 32, kZero = 127;
  static constexpr bool kCentred = true;
  __device__ static int code(const uint8_t *block, int i) {
    return iq4_code(nibble(block + 2, i, 16));
  }
  __device__ static float scale(const uint8_t *block, int) { return half_at(block, 0); }
};

struct IQ4_XS {
  static constexpr int kBytes = 136, kElements = 256, kSub = 32, kZero = 127;
  static constexpr bool kCentred = true;
  __device__ static int code(const uint8_t *block, int i) {
    return iq4_code(nibble(block + 8 + i / 32 * 16, i % 32, 16));
  }
  __device__ static float scale(const uint8_t *block, int sub) {
    const int low = block[4 + sub / 2] >> (sub % 2 * 4) & 15;
    const int high = block[2 + sub / 4] >> (sub % 4 * 2) & 3;
    return __fmul_rn(half_at(block, 0), static_cast<float>((low | high << 4) - 32));
  }
};

struct MXFP4 {
  static constexpr int kBytes = 17, kElements = 32, kSub = 32, kZero = 12;
  static constexpr bool kCentred = true;
  __device__ static int code(const uint8_t *block, int i) {
    return e2m1_code(nibble(block + 1, i, 16));
  }
  // 2^(e - 128), half of the format's own because codes are doubled; the two smallest are
  // subnormal.
  __device__ static float scale(const uint8_t *block, int) {
    const uint32_t exponent = block[0];
    return __uint_as_float(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
  }
};

struct NVFP4 {
  static constexpr int kBytes = 36, kElements = 64, kSub = 16, kZero = 12;
  static constexpr bool kCentred = true;
  __device__ static int code(const uint8_t *block, int i) {
    return e2m1_code(nibble(block + 4 + i / 16 * 8, i % 16, 8));
  }
  // Half of an unsigned E4M3 byte: the sign bit is not looked at, 0x7F is zero. Exact.
  __device__ static float scale(const uint8_t *block, int sub) {
    const uint32_t byte = block[sub], exponent = byte >> 3 & 15;
    const float mantissa = static_cast<float>(byte & 7);
    if (byte == 0x7F) return 0.0f;
    if (exponent == 0) return mantissa * (1.0f / 1024.0f);
    return (1.0f + mantissa * 0.125f) * __uint_as_float((exponent + 119) << 23);
  }
};

// What a code means in sub-block `sub`.
template <class Type>
__device__ inline float value(const uint8_t *block, int sub, int code) {
  const float scale = Type::scale(block, sub);
  if constexpr (Type::kCentred) {
    return __fmul_rn(scale, static_cast<float>(code - Type::kZero));
  } else {
    return __fsub_rn(__fmul_rn(scale, static_cast<float>(code)), Type::offset(block, sub));
  }
}

// Element `i` of a block.
template <class Type>
__device__ inline float decode(const uint8_t *block, int i) {
  return value<Type>(block, i / Type::kSub, Type::code(block, i));
}

// Sub-block `sub` of a block: `kSub` consecutive elements.
template <class Type>
__device__ inline void decode_sub(const uint8_t *block, int sub, float (&out)[Type::kSub]) {
  const float scale = Type::scale(block, sub);
  float offset = 0.0f;
  if constexpr (!Type::kCentred) offset = Type::offset(block, sub);
#pragma unroll
  for (int i = 0; i < Type::kSub; i++) {
    const int code = Type::code(block, sub * Type::kSub + i);
    if constexpr (Type::kCentred) {
      out[i] = __fmul_rn(scale, static_cast<float>(code - Type::kZero));
    } else {
      out[i] = __fsub_rn(__fmul_rn(scale, static_cast<float>(code)), offset);
    }
  }
}

}  // namespace ft::quant
