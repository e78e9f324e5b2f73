// Weights as tensor cores want them: *bricks* of 16 rows by one unit of inputs, in registers
// by whole 16-byte loads of a warp.
//
// A *unit* is 256 inputs (128 of scalars). Inputs of a unit are handed to the four lanes
// `t` of a quad so that each decodes whole sub-blocks; a *pair* is what two products of 16
// inputs take, 8 inputs of each lane:
//   blocks:  pair w: inputs 64 t + 4 w + {0, 2, 1, 3}, then the same 32 further on;
//   scalars: pair w: inputs 32 w + 8 t + 0..3, then 4..7.
// `linear_pack` lays activations out in the same order.
//
// A weight is [tile of 16 rows][unit][brick]; rows past the last and inputs past the end are
// zero. A brick holds a *head* (scales) and *parts* (codes), each [lane][bytes]: lane
// `4 g + t` finds there all it needs of rows g and g + 8. Bricks of blocks take the bytes
// that the blocks took. `linear_repack.cu` makes them.
//
//   Q4_K  head: [g] d, dmin of row g, of row g + 8; [lane] 48 bits of scales (see Six)
//         part: the 8 codes of a product in a word. Codes of inputs 0, 2 lie in the low and
//               the high half at bits 2..5 (row g) and 6..9 (row g + 8), those of inputs 1, 3
//               at the same places after the two bytes of each half have been swapped
//   Q5_K  the same, and a word of fifth bits for two pairs (four products)
//   Q6_K  head: [lane] 4 scales of row g, 4 of row g + 8; [g] d of row g, of row g + 8
//         part: codes as Q4_K, and for each pair a word of the two high bits
//   Q8_0  head: [lane] d of sub-blocks 2 t, 2 t + 1 of row g, then of row g + 8
//         part: a pair's 4 bytes of row g, of row g + 8; then of its second product
//   F16, BF16  part: the registers of a pair's products
//
// Values: a code `q` at bits b.. of a half is the f16 subnormal `q 2^(b - 24)`, exact; one
// fused multiply-add makes the value of it. All values of a matrix are a power of two times
// what the file says, chosen at load so that scales fill the range of f16 (`up`, linear
// repack); the inverse is in the factor of the product. Scales and offsets of sub-blocks are
// rounded to f16 once, values once more.
#pragma once

#include "mma.cuh"

namespace ft::brick {

// Sixteen bytes that are read once, past the first-level cache.
__device__ inline uint4 stream16(const void *from) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from));
  return x;
}

__device__ inline uint2 stream8(const void *from) {
  uint2 x;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(x.x), "=r"(x.y)
               : "l"(from));
  return x;
}

__device__ inline uint32_t stream4(const void *from) {
  uint32_t x;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(x) : "l"(from));
  return x;
}

__device__ inline uint32_t stream2(const void *from) {
  uint16_t x;
  asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(x) : "l"(from));
  return x;
}

// How a brick is read: from global memory, each byte once, or from anywhere.
struct Streamed {
  __device__ static uint4 read16(const void *from) { return stream16(from); }
  __device__ static uint2 read8(const void *from) { return stream8(from); }
  __device__ static uint32_t read4(const void *from) { return stream4(from); }
  __device__ static uint32_t read2(const void *from) { return stream2(from); }
};

struct Shared {
  __device__ static uint4 read16(const void *from) { return *static_cast<const uint4 *>(from); }
  __device__ static uint2 read8(const void *from) { return *static_cast<const uint2 *>(from); }
  __device__ static uint32_t read4(const void *from) {
    return *static_cast<const uint32_t *>(from);
  }
  __device__ static uint32_t read2(const void *from) {
    return *static_cast<const uint16_t *>(from);
  }
};

__device__ inline uint32_t low_twice(uint32_t x) { return __byte_perm(x, x, 0x1010); }
__device__ inline uint32_t high_twice(uint32_t x) { return __byte_perm(x, x, 0x3232); }
__device__ inline __half2 twice(uint16_t bits) { return as_half2(bits * 0x10001u); }

constexpr uint32_t kLowCodes = 0x003C003C;   // bits 2..5 of each half
constexpr uint32_t kHighCodes = 0x03C003C0;  // bits 6..9
constexpr uint16_t kSixteenth = 0x2C00;      // 2^-4 as f16
constexpr uint32_t kSwapBytes = 0x2301;      // of each half, for __byte_perm

// Six-bit scales and minimums of two rows' two sub-blocks, as Q4_K and Q5_K have them.
// `first` has in the low half of its bits those of scales, in the high half of minimums: of
// row g sub-block 2 t, 2 t + 1 (6 bits each), and of row g + 8 sub-block 2 t (low 4 bits).
// `second`, a byte for each, has its two high bits and sub-block 2 t + 1.
struct Six {
  uint32_t scales[2][2];  // [row][sub-block], in both halves; of row g + 8 over 16
  uint32_t minus[2][2];

  __device__ void begin(uint2 factors, uint32_t first, uint32_t second) {
    const uint32_t spread = __byte_perm(second, 0, 0x4140);
    set(0, 0, factors.x, first & 0x003F003F);
    set(0, 1, factors.x, first >> 6 & 0x003F003F);
    set(1, 0, factors.y, (first >> 12 & 0x000F000F) | (spread << 4 & 0x00300030));
    set(1, 1, factors.y, spread >> 2 & 0x003F003F);
  }

  // The scale as an integer, the minimum as a subnormal, times d and -dmin.
  __device__ void set(int row, int sub, uint32_t factors, uint32_t codes) {
    const __half2 integers = __hsub2(as_half2(codes | 0x00006400), as_half2(0x00006400));
    const uint32_t both = as_bits(__hmul2(integers, as_half2(factors)));
    uint32_t scale = low_twice(both);
    if (row) scale = as_bits(__hmul2(as_half2(scale), twice(kSixteenth)));
    scales[row][sub] = scale;
    minus[row][sub] = high_twice(both);
  }
};

struct Q4_K {
  static constexpr int kUnit = 256, kPairs = 8, kBytes = 2304;
  static constexpr int kParts = 4, kPartPairs = 2;
  static constexpr bool kHelped = true;
  static constexpr bool kBfloat = false;
  struct Head {
    uint2 factors;
    uint32_t first, second;
  };
  struct Part {
    uint4 codes;
  };
  Six six;

  template <class Read>
  __device__ static Head head(const uint8_t *brick, int lane) {
    return {Read::read8(brick + lane / 4 * 8), Read::read4(brick + 64 + lane * 4),
            Read::read2(brick + 192 + lane * 2)};
  }
  template <class Read>
  __device__ static Part part(const uint8_t *brick, int lane, int v) {
    return {Read::read16(brick + 256 + v * 512 + lane * 16)};
  }
  __device__ void begin(const Head &head) { six.begin(head.factors, head.first, head.second); }

  __device__ void pair(const Part &part, int, int w, uint32_t (&a)[2][4]) const {
    const uint32_t words[2] = {w ? part.codes.z : part.codes.x, w ? part.codes.w : part.codes.y};
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint32_t x = words[i], y = __byte_perm(x, 0, kSwapBytes);
      const __half2 s0 = as_half2(six.scales[0][i]), m0 = as_half2(six.minus[0][i]);
      const __half2 s1 = as_half2(six.scales[1][i]), m1 = as_half2(six.minus[1][i]);
      a[i][0] = as_bits(__hfma2(as_half2(x & kLowCodes), s0, m0));
      a[i][1] = as_bits(__hfma2(as_half2(x & kHighCodes), s1, m1));
      a[i][2] = as_bits(__hfma2(as_half2(y & kLowCodes), s0, m0));
      a[i][3] = as_bits(__hfma2(as_half2(y & kHighCodes), s1, m1));
    }
  }
};

// The fifth bits of product `j` of four: shifted down by j, those of inputs 0, 2 are at bit 6
// (row g) and 10 (row g + 8) of the halves; those of inputs 1, 3 after swapping bytes.
struct Q5_K {
  static constexpr int kUnit = 256, kPairs = 8, kBytes = 2816;
  static constexpr int kParts = 4, kPartPairs = 2;
  static constexpr bool kHelped = false;
  static constexpr bool kBfloat = false;
  using Head = Q4_K::Head;
  struct Part {
    uint4 codes;
    uint32_t high;
  };
  Six six;

  template <class Read>
  __device__ static Head head(const uint8_t *brick, int lane) {
    return Q4_K::head<Read>(brick, lane);
  }
  template <class Read>
  __device__ static Part part(const uint8_t *brick, int lane, int v) {
    return {Read::read16(brick + 256 + v * 512 + lane * 16),
            Read::read4(brick + 2304 + v * 128 + lane * 4)};
  }
  __device__ void begin(const Head &head) { six.begin(head.factors, head.first, head.second); }

  __device__ void pair(const Part &part, int, int w, uint32_t (&a)[2][4]) const {
    const uint32_t words[2] = {w ? part.codes.z : part.codes.x, w ? part.codes.w : part.codes.y};
    const uint32_t swapped = __byte_perm(part.high, 0, kSwapBytes);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint32_t x = words[i], y = __byte_perm(x, 0, kSwapBytes);
      const uint32_t hx = part.high >> (2 * w + i), hy = swapped >> (2 * w + i);
      const __half2 s0 = as_half2(six.scales[0][i]), m0 = as_half2(six.minus[0][i]);
      const __half2 s1 = as_half2(six.scales[1][i]), m1 = as_half2(six.minus[1][i]);
      a[i][0] = as_bits(__hfma2(as_half2((x & kLowCodes) | (hx & 0x00400040)), s0, m0));
      a[i][1] = as_bits(__hfma2(as_half2((x & kHighCodes) | (hx & 0x04000400)), s1, m1));
      a[i][2] = as_bits(__hfma2(as_half2((y & kLowCodes) | (hy & 0x00400040)), s0, m0));
      a[i][3] = as_bits(__hfma2(as_half2((y & kHighCodes) | (hy & 0x04000400)), s1, m1));
    }
  }
};

// High bits of a pair: in each half, from bit 6 on and around, two bits for each of the
// registers 0..3 of the first product, then of the second.
struct Q6_K {
  static constexpr int kUnit = 256, kPairs = 8, kBytes = 3360;
  static constexpr int kParts = 4, kPartPairs = 2;
  static constexpr bool kHelped = false;
  static constexpr bool kBfloat = false;
  struct Head {
    uint2 scales;
    uint32_t factors;
  };
  struct Part {
    uint4 codes;
    uint2 high;
  };
  uint32_t scales[2][2];  // [row][second product]: of pairs 0..3 low, of 4..7 high

  template <class Read>
  __device__ static Head head(const uint8_t *brick, int lane) {
    return {Read::read8(brick + lane * 8), Read::read4(brick + 256 + lane / 4 * 4)};
  }
  template <class Read>
  __device__ static Part part(const uint8_t *brick, int lane, int v) {
    return {Read::read16(brick + 288 + v * 512 + lane * 16),
            Read::read8(brick + 2336 + v * 256 + lane * 8)};
  }

  // Bytes 0, 1 are the sub-blocks of the first product, 2, 3 of the second.
  __device__ void begin(const Head &head) {
#pragma unroll
    for (int row = 0; row < 2; row++) {
      const uint32_t raw = (row ? head.scales.y : head.scales.x) ^ 0x80808080;
      const __half2 d = as_half2(row ? high_twice(head.factors) : low_twice(head.factors));
      const __half2 bias = twice(0x6480);  // 1152
      const __half2 s0 = __hsub2(as_half2(__byte_perm(raw, 0x64646464, 0x4140)), bias);
      const __half2 s1 = __hsub2(as_half2(__byte_perm(raw, 0x64646464, 0x4342)), bias);
      scales[row][0] = as_bits(__hmul2(s0, d));
      scales[row][1] = as_bits(__hmul2(s1, d));
    }
  }

  __device__ void pair(const Part &part, int v, int w, uint32_t (&a)[2][4]) const {
    const uint32_t words[2] = {w ? part.codes.z : part.codes.x, w ? part.codes.w : part.codes.y};
    const uint32_t h = w ? part.high.y : part.high.x;
    const uint32_t high[2][4] = {{h, h >> 2, h >> 4, h >> 6}, {h >> 8, h << 6, h << 4, h << 2}};
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint32_t x = words[i], y = __byte_perm(x, 0, kSwapBytes);
      const uint32_t low[4] = {x, x >> 4, y, y >> 4};
      __half2 s[2], m[2];
#pragma unroll
      for (int row = 0; row < 2; row++) {
        const uint32_t both = scales[row][i];
        s[row] = as_half2(v < kParts / 2 ? low_twice(both) : high_twice(both));
        m[row] = __hmul2(s[row], twice(0x8080));  // -32 times 2^-22
      }
#pragma unroll
      for (int r = 0; r < 4; r++) {
        const uint32_t q = (low[r] & kLowCodes) | (high[i][r] & 0x00C000C0);
        a[i][r] = as_bits(__hfma2(as_half2(q), s[r % 2], m[r % 2]));
      }
    }
  }
};

struct Q8_0 {
  static constexpr int kUnit = 256, kPairs = 8, kBytes = 4352;
  static constexpr int kParts = 8, kPartPairs = 1;
  static constexpr bool kHelped = false;
  static constexpr bool kBfloat = false;
  struct Head {
    uint2 factors;
  };
  struct Part {
    uint4 codes;
  };
  uint32_t scales[2][2];

  template <class Read>
  __device__ static Head head(const uint8_t *brick, int lane) {
    return {Read::read8(brick + lane * 8)};
  }
  template <class Read>
  __device__ static Part part(const uint8_t *brick, int lane, int v) {
    return {Read::read16(brick + 256 + v * 512 + lane * 16)};
  }
  __device__ void begin(const Head &head) {
    scales[0][0] = low_twice(head.factors.x);
    scales[0][1] = high_twice(head.factors.x);
    scales[1][0] = low_twice(head.factors.y);
    scales[1][1] = high_twice(head.factors.y);
  }

  // Bytes with their signs turned, as the halves 1024 + byte, less 1152.
  __device__ void pair(const Part &part, int, int, uint32_t (&a)[2][4]) const {
    const uint32_t words[2][2] = {{part.codes.x, part.codes.y}, {part.codes.z, part.codes.w}};
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int row = 0; row < 2; row++) {
        const uint32_t q = words[i][row];
        const __half2 bias = twice(0x6480), s = as_half2(scales[row][i]);
        const __half2 even = as_half2(__byte_perm(q, 0x64646464, 0x4240));
        const __half2 odd = as_half2(__byte_perm(q, 0x64646464, 0x4341));
        a[i][row] = as_bits(__hmul2(__hsub2(even, bias), s));
        a[i][row + 2] = as_bits(__hmul2(__hsub2(odd, bias), s));
      }
    }
  }
};

// Before sm_80 there are no bfloat16 products: BF16 weights become f16 at load.
template <bool kBfloatStored>
struct Scalars {
  static constexpr int kUnit = 128, kPairs = 4, kBytes = 4096;
  static constexpr int kParts = 4, kPartPairs = 1;
  static constexpr bool kHelped = false;
  static constexpr bool kBfloat = kBfloatStored && kModern;
  struct Head {};
  struct Part {
    uint4 first, second;
  };

  template <class Read>
  __device__ static Head head(const uint8_t *, int) {
    return {};
  }
  template <class Read>
  __device__ static Part part(const uint8_t *brick, int lane, int v) {
    return {Read::read16(brick + v * 1024 + lane * 16),
            Read::read16(brick + v * 1024 + 512 + lane * 16)};
  }
  __device__ void begin(const Head &) {}

  __device__ void pair(const Part &part, int, int, uint32_t (&a)[2][4]) const {
    const uint4 x = part.first, y = part.second;
    a[0][0] = x.x, a[0][1] = x.y, a[0][2] = x.z, a[0][3] = x.w;
    a[1][0] = y.x, a[1][1] = y.y, a[1][2] = y.z, a[1][3] = y.w;
  }
};

}  // namespace ft::brick
