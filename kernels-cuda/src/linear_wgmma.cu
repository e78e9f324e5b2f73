// Products of prompts on sm_90a, and activations as they read them: see linear_wgmma.cuh.

#include "activations.cuh"
#include "linear_wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The panel of `n` features from `begin` on, of `pitch` in all.
#define FT_LINEAR_WGMMA(type, bfloat, features)                                                \
  extern "C" __global__ __cluster_dims__(2, 1, 1)                                              \
      __launch_bounds__(384, 1) void linear_wgmma_##type##_##features##_sm90a(                 \
          ft::Site site, const int *control, unsigned set, int inputs, int outputs,            \
          const uint8_t *images, int padded, const float *factors, const uint8_t *weights,     \
          int decoded, int begin, int n, int pitch, int lines, int slice_lines, float scale,   \
          unsigned accumulate, float *out) {                                                   \
    const ft::Rows rows = ft::row_set(site, control, set, inputs, outputs);                    \
    if (rows.count == 0) return;                                                               \
    ft::linear::dense<bfloat, features>(                                                       \
        {images, weights, padded, decoded, factors, n, pitch, lines, slice_lines, scale,       \
         accumulate, out + begin},                                                             \
        rows.count);                                                                           \
  }

FT_LINEAR_WGMMA(f16, false, 128)
FT_LINEAR_WGMMA(f16, false, 160)
FT_LINEAR_WGMMA(f16, false, 192)
FT_LINEAR_WGMMA(bf16, true, 128)
FT_LINEAR_WGMMA(bf16, true, 160)
FT_LINEAR_WGMMA(bf16, true, 192)

// Activations to an image, values and factors as `linear_pack` (linear.cu) has them, with its
// `order`. Rows past the live ones stay undefined: they are multiplied and dropped.
// Grid: one block of 512 threads for each row; bound by the bytes of x and of the image.
extern "C" __global__ __launch_bounds__(512) void linear_pack_sm90a(
    ft::Site site, const int *control, unsigned set, int inputs, int outputs, const float *x,
    int k, unsigned order, int lines, int padded, uint8_t *image, float *factors) {
  using namespace ft::linear;
  const ft::Rows rows = ft::row_set(site, control, set, inputs, outputs);
  const int row = blockIdx.x;
  if (row >= rows.count) return;
  const Row from(x + static_cast<int64_t>(rows.first + row) * k, k);
  float up = 1.0f, down = 1.0f;
  if (order != kBfloatScalars) {
    float largest = 0.0f;
    for (int i = threadIdx.x * 4; i < k; i += 2048) largest = fmaxf(largest, largest_of(from.at(i)));
    row_scale(block_largest(largest), up, down);
  }
  if (threadIdx.x == 0) factors[row] = down;
  // A product of a pair: 32 bytes of a line from four times four inputs.
  for (int i = threadIdx.x; i < lines * 4; i += 512) {
    const int pair = i / 2, second = i % 2;
    uint32_t words[2][4];
#pragma unroll
    for (int t = 0; t < 4; t++) {
      const int at = order == kBlocks ? pair / 8 * 256 + 64 * t + pair % 8 * 4 + 32 * second
                                      : pair * 32 + 8 * t + 4 * second;
      const uint2 both = pack4(order, from.at(at), up);
      words[0][t] = both.x;
      words[1][t] = both.y;
    }
    uint8_t *line = image + (static_cast<int64_t>(pair / 2) * padded + row) * 128;
    const int piece = pair % 2 * 4 + second * 2;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      *reinterpret_cast<uint4 *>(line + ((piece + j) ^ (row % 8)) * 16) =
          make_uint4(words[j][0], words[j][1], words[j][2], words[j][3]);
    }
  }
}

#endif
