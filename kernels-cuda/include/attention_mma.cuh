// What attention on tensor cores shares: operands of the products, and numbers in parts.
//
// A product takes 16-bit numbers. Keys and values of a cache are such numbers, and go in as
// they are. Queries and probabilities are floats, and go in as two parts, the number as the
// type of the other operand and what that leaves off: 22 bits of binary16, 16 of bfloat16.
// So a product is two products with the same stored operand, and its error is that of a sum
// of floats (binary16) or 2^-17 of its terms (bfloat16), not 2^-11 or 2^-8.
#pragma once

#include "cached_heads.cuh"
#include "mma.cuh"
#include "span.cuh"

namespace ft::attention {

using ft::matrices;
using ft::shared_address;
using ft::transposed;

// Probabilities are at most 2^14: then those of 2^-14 of the largest are normal numbers of
// binary16, too. The factor cancels out when the sum is divided by.
constexpr float kRaise = 14.0f;

constexpr float kLog2e = 1.44269504088896341f;

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two floats as two numbers of a type each: `high` is the number, `low` what is left.
template <bool kBfloat>
__device__ inline void two_parts(float x, float y, uint32_t &high, uint32_t &low) {
  if constexpr (kBfloat) {
    high = pack_bfloat(x, y);
    low = pack_bfloat(__fsub_rn(x, bf16(high & 0xffff)),
                      __fsub_rn(y, __uint_as_float(high & 0xffff0000u)));
  } else {
    high = pack_half(x, y);
    const float2 back = __half22float2(as_half2(high));
    low = pack_half(__fsub_rn(x, back.x), __fsub_rn(y, back.y));
  }
}

// A power of two that brings a query's largest value into 2^13 .. 2^14, where its parts
// are numbers of binary16; 1 if that cannot be (zeros). Infinite values stay so.
__device__ inline float query_factor(float largest) {
  const int exponent = int(__float_as_uint(largest) >> 23 & 0xff);
  if (exponent == 0) return 1.0f;
  return __uint_as_float(unsigned(min(max(127 + 13 + 127 - exponent, 1), 254)) << 23);
}

// Heads of D numbers of 16 bits in shared memory: a row of D / 8 pieces of 16 bytes, of
// which eight neighbours trade places by the row, so that eight rows' pieces of a column lie
// in all banks.
template <int D>
struct Tile {
  static constexpr int kPieces = D / 8;
  static constexpr int kRowBytes = 2 * D;
  // Bytes from the start, which lies on a multiple of a row. Exclusive or with 32 i leads
  // from piece 0 or 1 to piece 2 i or 2 i + 1.
  __device__ static uint32_t place(int row, int piece) {
    return kRowBytes * row + 16 * (piece ^ (row & 7));
  }
};

// What a thread of `kThreads` copies of heads in neighbouring slots.
template <int D, int kThreads>
struct Copier {
  static constexpr int kPieces = Tile<D>::kPieces;
  static constexpr int kStride = kThreads / kPieces;  // rows between two pieces of a thread
  static_assert(kThreads % kPieces == 0 && (kStride == 4 || kStride % 8 == 0), "");
  int row;
  uint32_t at;
  __device__ Copier() {
    row = threadIdx.x / kPieces;
    at = Tile<D>::place(row, threadIdx.x % kPieces);
  }
  // Bytes from slot 0 to this thread's first piece of slot `first`, of the head that lies
  // `head_bytes` into a slot.
  __device__ long long offset(int first, int slot_bytes, int head_bytes) const {
    return (long long)(first + row) * slot_bytes +
           unsigned(head_bytes + 16 * int(threadIdx.x % kPieces));
  }
  // Copies `kRows` heads to `to`; rows from the `live`th on become zeros and are not read.
  template <int kRows>
  __device__ void copy(char *to, const char *from, int slot_bytes, int live) const {
    static_assert(kRows % kStride == 0, "");
#pragma unroll
    for (int i = 0; i < kRows / kStride; ++i) {
      // Every other four rows trade the upper four pieces of eight for the lower ones.
      const uint32_t place = (at ^ (kStride == 4 && i % 2 ? 64u : 0u)) +
                             i * kStride * Tile<D>::kRowBytes;
      if (live >= kRows || row + i * kStride < live) {
        ft::copy16(to + place, from + (long long)(i * kStride) * slot_bytes);
      } else {
        *reinterpret_cast<uint4 *>(to + place) = make_uint4(0, 0, 0, 0);
      }
    }
  }
};

}  // namespace ft::attention
