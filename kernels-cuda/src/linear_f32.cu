// Products in f32: weights of every type decoded to f32, activations as they are.
//
// `out[m][n] = scale * sum_k w[n][k] x[m][k]`. A block of 128 threads has two features and
// eight rows; thread i takes inputs 4 i .. 4 i + 3 of every 512, one chain of fused
// multiply-adds for each output. Sums of threads are added up in a tree within a warp and
// then by warp, ascending: the order depends on K alone. Bound by instructions: this is the
// reference path, and that of F32 weights, which are small.

#include "foretoken.cuh"
#include "quant.cuh"

namespace {

struct F32 {};
struct F16 {};
struct BF16 {};

// Four inputs of a stored row, from `first`, a multiple of four.
template <class Type>
__device__ void four(const uint8_t *row, int first, int, float (&w)[4]) {
  const uint8_t *block = row + static_cast<int64_t>(first / Type::kElements) * Type::kBytes;
  const int at = first % Type::kElements;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    w[j] = ft::quant::value<Type>(block, at / Type::kSub, Type::code(block, at + j));
  }
}

template <>
__device__ void four<F32>(const uint8_t *row, int first, int k, float (&w)[4]) {
  const float *from = reinterpret_cast<const float *>(row) + first;
#pragma unroll
  for (int j = 0; j < 4; j++) w[j] = first + j < k ? from[j] : 0.0f;
}

template <>
__device__ void four<F16>(const uint8_t *row, int first, int k, float (&w)[4]) {
  const uint16_t *from = reinterpret_cast<const uint16_t *>(row) + first;
#pragma unroll
  for (int j = 0; j < 4; j++) w[j] = first + j < k ? ft::quant::half_to_float(from[j]) : 0.0f;
}

template <>
__device__ void four<BF16>(const uint8_t *row, int first, int k, float (&w)[4]) {
  const uint16_t *from = reinterpret_cast<const uint16_t *>(row) + first;
#pragma unroll
  for (int j = 0; j < 4; j++) w[j] = first + j < k ? ft::quant::bfloat_to_float(from[j]) : 0.0f;
}

template <class Type>
__device__ void product(ft::Site site, const int *control, unsigned set, int inputs, int outputs,
                        const float *x, const uint8_t *weight, int64_t row_bytes, int n, int k,
                        float scale, unsigned accumulate, float *out) {
  constexpr int kFeatures = 2, kRows = 8;
  const ft::Rows rows = ft::row_set(site, control, set, inputs, outputs);
  const int row0 = blockIdx.y * kRows, feature0 = blockIdx.x * kFeatures;
  if (row0 >= rows.count) return;
  const float *from = x + static_cast<int64_t>(rows.first + row0) * k;
  float sums[kFeatures][kRows] = {};
  for (int first = threadIdx.x * 4; first < k; first += 512) {
    float w[kFeatures][4];
#pragma unroll
    for (int f = 0; f < kFeatures; f++) {
      four<Type>(weight + min(feature0 + f, n - 1) * row_bytes, first, k, w[f]);
    }
#pragma unroll
    for (int m = 0; m < kRows; m++) {
      if (row0 + m >= rows.count) break;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float value = first + j < k ? from[static_cast<int64_t>(m) * k + first + j] : 0.0f;
#pragma unroll
        for (int f = 0; f < kFeatures; f++) sums[f][m] = fmaf(w[f][j], value, sums[f][m]);
      }
    }
  }
  __shared__ float warps[4][kFeatures * kRows];
#pragma unroll
  for (int f = 0; f < kFeatures; f++) {
#pragma unroll
    for (int m = 0; m < kRows; m++) {
      float sum = sums[f][m];
#pragma unroll
      for (int step = 16; step > 0; step /= 2) {
        sum = __fadd_rn(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, step));
      }
      if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32][f * kRows + m] = sum;
    }
  }
  __syncthreads();
  const int m = threadIdx.x % kRows, f = threadIdx.x / kRows;
  if (f >= kFeatures || row0 + m >= rows.count || feature0 + f >= n) return;
  float sum = warps[0][threadIdx.x];
#pragma unroll
  for (int w = 1; w < 4; w++) sum = __fadd_rn(sum, warps[w][threadIdx.x]);
  const float value = __fmul_rn(sum, scale);
  float *to = out + static_cast<int64_t>(row0 + m) * n + feature0 + f;
  *to = accumulate ? __fadd_rn(*to, value) : value;
}

}  // namespace

// Grid (feature pairs, groups of eight rows), 128 threads.
#define PRODUCT(type, Type)                                                                     \
  extern "C" __global__ __launch_bounds__(128) void linear_f32_##type(                          \
      ft::Site site, const int *control, unsigned set, int inputs, int outputs, const float *x, \
      const uint8_t *weight, long long row_bytes, int n, int k, float scale,                    \
      unsigned accumulate, float *out) {                                                        \
    product<Type>(site, control, set, inputs, outputs, x, weight, row_bytes, n, k, scale,       \
                  accumulate, out);                                                             \
  }

PRODUCT(f32, F32)
PRODUCT(f16, F16)
PRODUCT(bf16, BF16)
PRODUCT(q8_0, ft::quant::Q8_0)
PRODUCT(q4_k, ft::quant::Q4_K)
PRODUCT(q5_k, ft::quant::Q5_K)
PRODUCT(q6_k, ft::quant::Q6_K)
PRODUCT(q4_0, ft::quant::Q4_0)
PRODUCT(q4_1, ft::quant::Q4_1)
PRODUCT(q5_0, ft::quant::Q5_0)
PRODUCT(q5_1, ft::quant::Q5_1)
PRODUCT(q2_k, ft::quant::Q2_K)
PRODUCT(q3_k, ft::quant::Q3_K)
PRODUCT(iq4_nl, ft::quant::IQ4_NL)
PRODUCT(iq4_xs, ft::quant::IQ4_XS)
PRODUCT(mxfp4, ft::quant::MXFP4)
PRODUCT(nvfp4, ft::quant::NVFP4)
