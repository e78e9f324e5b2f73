// Stored weights to the A operands of tensor-core products, in registers.
//
// A *unit* is 256 inputs (128 of scalars). Inputs of a unit are handed to the four lanes
// `t` of a quad so that each decodes whole sub-blocks; a *pair* is what two products of 16
// inputs take, 8 inputs of each lane:
//   blocks:  pair w: inputs 64 t + 4 w + {0, 2, 1, 3}, then the same 32 further on;
//   scalars: pair w: inputs 32 w + 8 t + 0..3, then 4..7.
// `linear_pack` lays activations out in the same order.
//
// A fragment is made for two rows of a tile, g and g + 8, whose stored bytes of the unit
// lie in shared memory. `Type::begin` reads scales, `Type::pair` gives the operands of the
// two products of a pair. With kAhead pairs are compile-time numbers and codes are read
// ahead; otherwise pairs may be run-time numbers.
//
// Values: codes are exact integers in f16; scale and offset of a sub-block are rounded to
// f16 once and the value once more. Types without a decoder of their own here are decoded
// in f32 (quant.cuh) and rounded once.
#pragma once

#include "mma.cuh"
#include "quant.cuh"

namespace ft::fragment {

// Little-endian words from any byte on, up to three bytes past the last one read.
struct Words {
  const uint32_t *at;
  uint32_t shift;

  __device__ Words() {}
  __device__ explicit Words(const uint8_t *from) {
    const uint32_t off = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from)) & 3;
    at = reinterpret_cast<const uint32_t *>(from - off);
    shift = off * 8;
  }
  __device__ uint32_t operator[](int i) const {
    return __funnelshift_r(at[i], at[i + 1], shift);
  }
};

__device__ inline uint32_t low_twice(uint32_t x) { return __byte_perm(x, x, 0x1010); }
__device__ inline uint32_t high_twice(uint32_t x) { return __byte_perm(x, x, 0x3232); }

// Bytes 0 and 2, or 1 and 3, as the halves 1024 + byte.
__device__ inline __half2 even_bytes(uint32_t x) {
  return as_half2(__byte_perm(x, 0x64646464, 0x4240));
}
__device__ inline __half2 odd_bytes(uint32_t x) {
  return as_half2(__byte_perm(x, 0x64646464, 0x4341));
}

__device__ inline __half2 both(float value) { return __float2half2_rn(value); }

// The scales and minimums of sub-blocks 2 t and 2 t + 1 of Q4_K and Q5_K, negated minimums,
// from the 16 bytes in front of the codes.
__device__ inline void six_bit(uint4 head, int t, uint32_t &scales, uint32_t &minus) {
  const int shift = t % 2 * 16;
  const uint32_t a = head.y >> shift, b = head.z >> shift, c = head.w >> shift;
  const uint32_t sc = t < 2 ? a & 0x3F3F : (c & 0x0F0F) | (a >> 2 & 0x3030);
  const uint32_t mn = t < 2 ? b & 0x3F3F : (c >> 4 & 0x0F0F) | (b >> 2 & 0x3030);
  const __half2 s = __hsub2(as_half2(__byte_perm(sc, 0x64646464, 0x4140)), both(1024.0f));
  const __half2 m = __hsub2(as_half2(__byte_perm(mn, 0x64646464, 0x4140)), both(1024.0f));
  scales = as_bits(__hmul2(s, as_half2(low_twice(head.x))));
  minus = as_bits(__hmul2(__hneg2(m), as_half2(high_twice(head.x))));
}

template <bool kAhead>
struct Q4_K {
  static constexpr int kUnit = 256, kPairs = 8, kUnitBytes = 144, kGrain = 16;
  static constexpr int kTiles = 2;
  static constexpr bool kBfloat = false;
  const uint8_t *codes[2];
  alignas(16) uint32_t words[2][kAhead ? 8 : 1];
  uint32_t scales[2], minus[2];

  __device__ void begin(const uint8_t *low, const uint8_t *high, int t) {
    const uint8_t *rows[2] = {low, high};
#pragma unroll
    for (int r = 0; r < 2; r++) {
      six_bit(*reinterpret_cast<const uint4 *>(rows[r]), t, scales[r], minus[r]);
      codes[r] = rows[r] + 16 + 32 * t;
      if constexpr (kAhead) {
        const uint4 *from = reinterpret_cast<const uint4 *>(codes[r]);
        *reinterpret_cast<uint4 *>(&words[r][0]) = from[0];
        *reinterpret_cast<uint4 *>(&words[r][4]) = from[1];
      }
    }
  }

  __device__ void pair(int w, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      uint32_t q;
      if constexpr (kAhead) {
        q = words[r][w];
      } else {
        q = reinterpret_cast<const uint32_t *>(codes[r])[w];
      }
      const uint32_t p = q >> 8;
      // 1024 + code, and where the code is four bits up, 64 + code.
      const __half2 b = both(-1024.0f), c = both(-64.0f);
      const __half2 q0 = __hadd2(as_half2((q & 0x000F000F) | 0x64006400), b);
      const __half2 q1 = __hadd2(as_half2((p & 0x000F000F) | 0x64006400), b);
      const __half2 q2 = __hadd2(as_half2((q & 0x00F000F0) | 0x54005400), c);
      const __half2 q3 = __hadd2(as_half2((p & 0x00F000F0) | 0x54005400), c);
      const __half2 s0 = as_half2(low_twice(scales[r])), m0 = as_half2(low_twice(minus[r]));
      const __half2 s1 = as_half2(high_twice(scales[r])), m1 = as_half2(high_twice(minus[r]));
      a[0][r] = as_bits(__hfma2(q0, s0, m0));
      a[0][r + 2] = as_bits(__hfma2(q1, s0, m0));
      a[1][r] = as_bits(__hfma2(q2, s1, m1));
      a[1][r + 2] = as_bits(__hfma2(q3, s1, m1));
    }
  }
};

template <bool kAhead>
struct Q5_K {
  static constexpr int kUnit = 256, kPairs = 8, kUnitBytes = 176, kGrain = 16;
  static constexpr int kTiles = 2;
  static constexpr bool kBfloat = false;
  const uint8_t *rows[2];
  int t;
  alignas(16) uint32_t words[2][kAhead ? 8 : 1];
  uint32_t scales[2], minus[2];

  __device__ void begin(const uint8_t *low, const uint8_t *high, int lane) {
    rows[0] = low;
    rows[1] = high;
    t = lane;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      six_bit(*reinterpret_cast<const uint4 *>(rows[r]), t, scales[r], minus[r]);
      if constexpr (kAhead) {
        const uint4 *from = reinterpret_cast<const uint4 *>(rows[r] + 48 + 32 * t);
        *reinterpret_cast<uint4 *>(&words[r][0]) = from[0];
        *reinterpret_cast<uint4 *>(&words[r][4]) = from[1];
      }
    }
  }

  __device__ void pair(int w, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      uint32_t q;
      if constexpr (kAhead) {
        q = words[r][w];
      } else {
        q = reinterpret_cast<const uint32_t *>(rows[r] + 48 + 32 * t)[w];
      }
      const uint32_t h = reinterpret_cast<const uint32_t *>(rows[r] + 16)[w] >> (2 * t);
      const uint32_t c0 = (q & 0x0F0F0F0F) | (h & 0x01010101) << 4;
      const uint32_t c1 = (q >> 4 & 0x0F0F0F0F) | (h & 0x02020202) << 3;
      const __half2 b = both(-1024.0f);
      const __half2 s0 = as_half2(low_twice(scales[r])), m0 = as_half2(low_twice(minus[r]));
      const __half2 s1 = as_half2(high_twice(scales[r])), m1 = as_half2(high_twice(minus[r]));
      a[0][r] = as_bits(__hfma2(__hadd2(even_bytes(c0), b), s0, m0));
      a[0][r + 2] = as_bits(__hfma2(__hadd2(odd_bytes(c0), b), s0, m0));
      a[1][r] = as_bits(__hfma2(__hadd2(even_bytes(c1), b), s1, m1));
      a[1][r + 2] = as_bits(__hfma2(__hadd2(odd_bytes(c1), b), s1, m1));
    }
  }
};

struct Q6_K {
  static constexpr int kUnit = 256, kPairs = 8, kUnitBytes = 210, kGrain = 2;
  static constexpr int kTiles = 2;
  static constexpr bool kBfloat = false;
  Words low[2], high[2];
  int shift;
  // Sub-blocks 4 t and 4 t + 2; 4 t + 1 and 4 t + 3.
  uint32_t even[2], odd[2];

  __device__ void begin(const uint8_t *first, const uint8_t *second, int t) {
    const uint8_t *rows[2] = {first, second};
    // Lanes 0 and 1 share the bytes of the first 128 inputs, 2 and 3 those of the others.
    shift = t % 2 * 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      low[r] = Words(rows[r] + t / 2 * 64);
      high[r] = Words(rows[r] + 128 + t / 2 * 32);
      const uint32_t signed_scales = Words(rows[r] + 192 + 4 * t)[0] ^ 0x80808080;
      const uint32_t bits = *reinterpret_cast<const uint16_t *>(rows[r] + 208);
      const __half2 d = as_half2(low_twice(bits)), b = both(1152.0f);
      even[r] = as_bits(__hmul2(__hsub2(even_bytes(signed_scales), b), d));
      odd[r] = as_bits(__hmul2(__hsub2(odd_bytes(signed_scales), b), d));
    }
  }

  __device__ void pair(int w, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const uint32_t h = high[r][w] >> shift;
      const uint32_t c0 = (low[r][w] >> shift & 0x0F0F0F0F) | (h & 0x03030303) << 4;
      const uint32_t c1 = (low[r][w + 8] >> shift & 0x0F0F0F0F) | (h & 0x0C0C0C0C) << 2;
      const uint32_t scales = w < 4 ? even[r] : odd[r];
      const __half2 s0 = as_half2(low_twice(scales)), s1 = as_half2(high_twice(scales));
      const __half2 b = both(1056.0f);
      a[0][r] = as_bits(__hmul2(__hsub2(even_bytes(c0), b), s0));
      a[0][r + 2] = as_bits(__hmul2(__hsub2(odd_bytes(c0), b), s0));
      a[1][r] = as_bits(__hmul2(__hsub2(even_bytes(c1), b), s1));
      a[1][r + 2] = as_bits(__hmul2(__hsub2(odd_bytes(c1), b), s1));
    }
  }
};

struct Q8_0 {
  static constexpr int kUnit = 256, kPairs = 8, kUnitBytes = 272, kGrain = 2;
  static constexpr int kTiles = 1;
  static constexpr bool kBfloat = false;
  Words codes[2][2];
  uint32_t scales[2][2];

  __device__ void begin(const uint8_t *low, const uint8_t *high, int t) {
    const uint8_t *rows[2] = {low, high};
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const uint8_t *block = rows[r] + 34 * (2 * t + i);
        scales[r][i] = low_twice(*reinterpret_cast<const uint16_t *>(block));
        codes[r][i] = Words(block + 2);
      }
    }
  }

  __device__ void pair(int w, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const uint32_t q = codes[r][i][w] ^ 0x80808080;
        const __half2 b = both(1152.0f), s = as_half2(scales[r][i]);
        a[i][r] = as_bits(__hmul2(__hsub2(even_bytes(q), b), s));
        a[i][r + 2] = as_bits(__hmul2(__hsub2(odd_bytes(q), b), s));
      }
    }
  }
};

// Any block type, by way of f32.
template <class Type>
struct Decoded {
  static constexpr int kUnit = 256, kPairs = 8, kGrain = Type::kBytes % 2 ? 1 : 2;
  static constexpr int kUnitBytes = 256 / Type::kElements * Type::kBytes;
  static constexpr int kTiles = 1;
  static constexpr bool kBfloat = false;
  const uint8_t *rows[2];
  int first;

  __device__ void begin(const uint8_t *low, const uint8_t *high, int t) {
    rows[0] = low;
    rows[1] = high;
    first = 64 * t;
  }

  __device__ void pair(int w, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int k = first + 4 * w + 32 * i, at = k % Type::kElements;
        const uint8_t *block = rows[r] + k / Type::kElements * Type::kBytes;
        float x[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
          x[j] = quant::value<Type>(block, at / Type::kSub, Type::code(block, at + j));
        }
        a[i][r] = pack_half(x[0], x[2]);
        a[i][r + 2] = pack_half(x[1], x[3]);
      }
    }
  }
};

// F16 and BF16, whose rows may begin at any even address. Without bfloat16 products BF16
// weights are rounded to f16: exact from 2^-14 to 65504.
template <bool kBfloatStored>
struct Scalars {
  static constexpr int kUnit = 128, kPairs = 4, kUnitBytes = 256, kGrain = 2;
  static constexpr int kTiles = 1;
  static constexpr bool kBfloat = kBfloatStored && kModern;
  const uint8_t *rows[2];

  __device__ void begin(const uint8_t *low, const uint8_t *high, int t) {
    rows[0] = low + 16 * t;
    rows[1] = high + 16 * t;
  }

  __device__ static uint32_t word(uint32_t x) {
    if constexpr (kBfloatStored && !kModern) {
      return pack_half(__uint_as_float(x << 16), __uint_as_float(x & 0xFFFF0000));
    } else {
      return x;
    }
  }

  __device__ void pair(int w, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const uint8_t *from = rows[r] + 64 * w;
      uint4 x;
      if (reinterpret_cast<uintptr_t>(from) % 16 == 0) {
        x = *reinterpret_cast<const uint4 *>(from);
      } else {
        const Words words(from);
        x = make_uint4(words[0], words[1], words[2], words[3]);
      }
      a[0][r] = word(x.x);
      a[0][r + 2] = word(x.y);
      a[1][r] = word(x.z);
      a[1][r + 2] = word(x.w);
    }
  }
};

}  // namespace ft::fragment
