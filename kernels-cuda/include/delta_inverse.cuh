// The inverse of a unit lower triangular matrix of 64 by 64, in shared memory.
//
// By 4 warps, in place: below the diagonal A goes in and (1 + A)^-1 comes out, with its
// diagonal. First each warp has a block of 16 on the diagonal, a column in a lane; then two
// blocks X, Y with B between them become [[X, 0], [-Y B X, Y]], of 16, then of 32 rows, with
// products on tensor cores. Numbers go in as two of binary16 each, 22 bits, so that errors
// are those of F32; all of them are below 64 where rows of the chunk's keys are unit.
//
// Blocks of 16 by 16 above the diagonal are neither read nor written.
#pragma once

#include "mma.cuh"

namespace ft::delta {

// Eight rows are 8 banks apart, so that pairs of columns of eight rows are read at once.
using Square = float[64][72];

// A number pair of an operand in two parts.
struct Parts {
  uint32_t high, low;
  __device__ Parts() {}
  __device__ Parts(float x, float y) {
    high = ft::pack_half(x, y);
    const float2 back = __half22float2(ft::as_half2(high));
    low = ft::pack_half(x - back.x, y - back.y);
  }
};

struct OperandA {
  uint32_t high[4], low[4];
  __device__ void set(int i, const Parts &parts) { high[i] = parts.high, low[i] = parts.low; }
  // Rows from `row` on, 16 columns from `column` on.
  __device__ void load(const Square &from, int row, int column, int g, int t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 x = *reinterpret_cast<const float2 *>(
          &from[row + g + 8 * (i % 2)][column + 2 * t + 8 * (i / 2)]);
      set(i, Parts(x.x, x.y));
    }
  }
  // 16 columns that a product left.
  __device__ void take(const float (&x)[4], const float (&y)[4]) {
    set(0, Parts(x[0], x[1]));
    set(1, Parts(x[2], x[3]));
    set(2, Parts(y[0], y[1]));
    set(3, Parts(y[2], y[3]));
  }
};

// `c += a b`, where b has 16 rows from `row` on, 8 columns from `column` on.
__device__ inline void product(float (&c)[4], const OperandA &a, const Square &from, int row,
                               int column, int g, int t) {
  const float *b = &from[row + 2 * t][column + g];
  constexpr int kStride = sizeof(Square) / sizeof(float) / 64;
  const Parts first(b[0], b[kStride]), second(b[8 * kStride], b[9 * kStride]);
  ft::mma<false>(c, a.low, first.high, second.high);
  ft::mma<false>(c, a.high, first.low, second.low);
  ft::mma<false>(c, a.high, first.high, second.high);
}

// A block of 16 on the diagonal, by one warp.
__device__ inline void invert_block(Square &a, int first) {
  const int lane = threadIdx.x % 32, column = lane % 16;
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float chains[2] = {i == column ? 1.0f : 0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 row = *reinterpret_cast<const float4 *>(&a[first + i][first + j]);
      const float four[4] = {row.x, row.y, row.z, row.w};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (j + r < i) chains[r % 2] = fmaf(-four[r], x[j + r], chains[r % 2]);
      }
    }
    x[i] = chains[0] + chains[1];
  }
  __syncwarp();
  if (lane < 16) {
#pragma unroll
    for (int i = 0; i < 16; ++i) a[first + i][first + column] = x[i];
  }
}

__device__ inline void put(Square &a, const float (&c)[4], int row, int column, int g, int t) {
  *reinterpret_cast<float2 *>(&a[row + g][column + 2 * t]) = make_float2(-c[0], -c[1]);
  *reinterpret_cast<float2 *>(&a[row + g + 8][column + 2 * t]) = make_float2(-c[2], -c[3]);
}

// By 128 threads, which all have to have written; when it returns, all see the inverse.
__device__ inline void invert(Square &a) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  invert_block(a, 16 * warp);
  __syncthreads();
  if (warp < 2) {
    const int first = 32 * warp, second = first + 16;
    OperandA left;
    left.load(a, second, second, g, t);
    float z[2][4] = {}, c[2][4] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n) product(z[n], left, a, second, first + 8 * n, g, t);
    left.take(z[0], z[1]);
#pragma unroll
    for (int n = 0; n < 2; ++n) product(c[n], left, a, first, first + 8 * n, g, t);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < 2; ++n) put(a, c[n], second, first + 8 * n, g, t);
  }
  __syncthreads();
  // A warp has 16 rows and 16 columns of the result.
  const int row = 32 + 16 * (warp / 2), half = warp % 2;
  float z[4][4] = {}, c[2][4] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (i > warp / 2) continue;  // above the diagonal
    OperandA left;
    left.load(a, row, 32 + 16 * i, g, t);
#pragma unroll
    for (int n = 0; n < 4; ++n) product(z[n], left, a, 32 + 16 * i, 8 * n, g, t);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (i < half) continue;
    OperandA left;
    left.take(z[2 * i], z[2 * i + 1]);
#pragma unroll
    for (int n = 0; n < 2; ++n) product(c[n], left, a, 16 * i, 16 * half + 8 * n, g, t);
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < 2; ++n) put(a, c[n], row, 16 * half + 8 * n, g, t);
  __syncthreads();
}

}  // namespace ft::delta
