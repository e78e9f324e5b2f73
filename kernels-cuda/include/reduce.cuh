// Sums in one order, given by the number of threads alone.
#pragma once

#include "wide.cuh"

namespace ft {

constexpr unsigned kAllLanes = 0xffffffffu;

// Sum over the lanes of a warp, pairs of distance 16 first, for every lane.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
  }
  return x;
}

// Sum over the threads of a block of whole warps, in one dimension, for every thread.
// `partials` is shared memory that no other call uses between the same two barriers.
__device__ inline float block_sum(float x, float (&partials)[32]) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  x = warp_sum(x);
  if (lane == 0) partials[warp] = x;
  __syncthreads();
  return warp_sum(lane < blockDim.x / 32 ? partials[lane] : 0.0f);
}

// Part of the sum of squares of a row: thread `thread` of `threads` takes every
// `threads`-th group of four, its four places apart until the end.
__device__ inline float squares(const float *row, int n, bool wide, int thread, int threads) {
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int i = 4 * thread; i < n; i += 4 * threads) {
    const float4 x = load4(row, i, n, wide);
    sum.x = fmaf(x.x, x.x, sum.x);
    sum.y = fmaf(x.y, x.y, sum.y);
    sum.z = fmaf(x.z, x.z, sum.z);
    sum.w = fmaf(x.w, x.w, sum.w);
  }
  return (sum.x + sum.y) + (sum.z + sum.w);
}

// What a row of `n` with this sum of squares is multiplied with: 1 / sqrt(mean + eps).
__device__ inline float rms_factor(float squares, int n, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(n) + eps);
}

// `1 / (1 + e^-x)`.
__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// `x * sigmoid(x)`; not finite for either infinity.
__device__ inline float silu(float x) { return x * sigmoid(x); }

}  // namespace ft
