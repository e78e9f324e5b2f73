// Rows of activations on their way to operands of tensor cores.
#pragma once

#include "mma.cuh"

namespace ft::linear {

// Orders of inputs: fragment.cuh.
enum Order : unsigned { kBlocks = 0, kScalars = 1, kBfloatScalars = 2 };

constexpr int kPackThreads = 1024;  // at most

// Largest of a block of whole warps, the same for each thread.
__device__ inline float block_largest(float x) {
  __shared__ float each[kPackThreads / 32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  if (threadIdx.x % 32 == 0) each[threadIdx.x / 32] = x;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  x = lane < static_cast<int>(blockDim.x) / 32 ? each[lane] : 0.0f;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}

// A row of activations by fours; zero past its end.
struct Row {
  const float *from;
  int k;
  bool wide;

  __device__ Row(const float *row, int width) : from(row), k(width) {
    wide = reinterpret_cast<uintptr_t>(row) % 16 == 0;
  }
  __device__ float4 at(int i) const {
    if (wide && i + 4 <= k) return *reinterpret_cast<const float4 *>(from + i);
    float x[4];
#pragma unroll
    for (int j = 0; j < 4; j++) x[j] = i + j < k ? from[i + j] : 0.0f;
    return make_float4(x[0], x[1], x[2], x[3]);
  }
};

__device__ inline float largest_of(float4 x) {
  return fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
}

// Two registers of an operand.
__device__ inline uint2 pack4(unsigned order, float4 x, float up) {
  x = make_float4(__fmul_rn(x.x, up), __fmul_rn(x.y, up), __fmul_rn(x.z, up),
                  __fmul_rn(x.w, up));
  if (order == kBlocks) return make_uint2(pack_half(x.x, x.z), pack_half(x.y, x.w));
  if (order == kScalars) return make_uint2(pack_half(x.x, x.y), pack_half(x.z, x.w));
  return make_uint2(pack_bfloat(x.x, x.y), pack_bfloat(x.z, x.w));
}

// For f16: takes the largest magnitude of a row into 2^14 .. 2^15, down from 2^-100 at
// least, and back.
__device__ inline void row_scale(float largest, float &up, float &down) {
  const int biased = static_cast<int>(__float_as_uint(largest) >> 23);
  const int exponent = min(127, max(-100, biased - 127));
  up = __uint_as_float(static_cast<unsigned>(14 - exponent + 127) << 23);
  down = __uint_as_float(static_cast<unsigned>(exponent - 14 + 127) << 23);
}

}  // namespace ft::linear
