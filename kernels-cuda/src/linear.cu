// Around the products: activations as they read them, and sums of their slices.

#include "linear.cuh"

namespace {

// Orders of inputs: fragment.cuh.
enum Order : unsigned { kBlocks = 0, kScalars = 1, kBfloatScalars = 2 };

// Largest of a block of 512 threads, the same for each.
__device__ float block_largest(float x) {
  __shared__ float each[16];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  if (threadIdx.x % 32 == 0) each[threadIdx.x / 32] = x;
  __syncthreads();
  x = each[threadIdx.x % 16];
#pragma unroll
  for (int step = 8; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}

}  // namespace

// Packs rows of `x`, [inputs][k], into B operands: [group][pair][8-row tile][lane][16 bytes],
// lane `4 g + t` having row g of the tile, `tiles` tiles to a group. For f16 the largest magnitude of a row is scaled into
// 2^14 .. 2^15 by a power of two (down from 2^-100 at least), whose inverse is its factor;
// smaller values keep eleven bits down to 2^-28 of the largest. NaN and infinity stay what
// they are. Inputs past k and rows that fill up a group are zero.
// Grid: one block of 512 threads for each row; a row alone decides its bits.
extern "C" __global__ __launch_bounds__(512) void linear_pack(
    ft::Site site, const int *control, unsigned set, int inputs, int outputs, const float *x,
    int k, unsigned order, int pairs, int tiles, uint4 *packed, float *factors) {
  const ft::Rows rows = ft::row_set(site, control, set, inputs, outputs);
  const int row = blockIdx.x;
  const int whole = 8 * tiles;
  if (row >= (rows.count + whole - 1) / whole * whole) return;
  const bool live = row < rows.count;
  const float *from = x + static_cast<int64_t>(rows.first + row) * k;
  float up = 1.0f, down = 1.0f;
  if (live && order != kBfloatScalars) {
    float largest = 0.0f;
    for (int i = threadIdx.x; i < k; i += 512) largest = fmaxf(largest, fabsf(from[i]));
    largest = block_largest(largest);
    const int biased = static_cast<int>(__float_as_uint(largest) >> 23);
    const int exponent = min(127, max(-100, biased - 127));
    up = __uint_as_float(static_cast<unsigned>(14 - exponent + 127) << 23);
    down = __uint_as_float(static_cast<unsigned>(exponent - 14 + 127) << 23);
  }
  if (threadIdx.x == 0) factors[row] = down;
  const int group = row / 8 / tiles, tile = row / 8 % tiles;
  uint4 *to = packed + (static_cast<int64_t>(group) * pairs * tiles + tile) * 32 + row % 8 * 4;
  for (int piece = threadIdx.x; piece < pairs * 4; piece += 512) {
    const int pair = piece / 4, t = piece % 4;
    const int first = order == kBlocks ? pair / 8 * 256 + 64 * t + pair % 8 * 4 : pair * 32 + 8 * t;
    const int second = first + (order == kBlocks ? 32 : 4);
    float v[2][4];
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int at = (i ? second : first) + j;
        v[i][j] = live && at < k ? __fmul_rn(from[at], up) : 0.0f;
      }
    }
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      if (order == kBlocks) {
        words[2 * i] = ft::pack_half(v[i][0], v[i][2]);
        words[2 * i + 1] = ft::pack_half(v[i][1], v[i][3]);
      } else if (order == kScalars) {
        words[2 * i] = ft::pack_half(v[i][0], v[i][1]);
        words[2 * i + 1] = ft::pack_half(v[i][2], v[i][3]);
      } else {
        words[2 * i] = ft::pack_bfloat(v[i][0], v[i][1]);
        words[2 * i + 1] = ft::pack_bfloat(v[i][2], v[i][3]);
      }
    }
    to[(static_cast<int64_t>(pair) * tiles) * 32 + t] =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// Adds up the planes of a step, [slice][row][n]: in order of slices.
// Grid: blocks of 256 threads for features, then rows.
extern "C" __global__ __launch_bounds__(256) void linear_sum(
    ft::Site site, const int *control, unsigned set, int inputs, int outputs, const float *planes,
    const float *factors, int slices, int n, float scale, unsigned accumulate, float *out) {
  const ft::Rows rows = ft::row_set(site, control, set, inputs, outputs);
  const int row = blockIdx.y, feature = blockIdx.x * 256 + threadIdx.x;
  if (row >= rows.count || feature >= n) return;
  const float *at = planes + static_cast<int64_t>(row) * n + feature;
  const int64_t plane = static_cast<int64_t>(rows.count) * n;
  float parts[16];
#pragma unroll
  for (int s = 0; s < 16; s++) parts[s] = s < slices ? at[s * plane] : 0.0f;
  float sum = parts[0];
#pragma unroll
  for (int s = 1; s < 16; s++) {
    if (s < slices) sum = __fadd_rn(sum, parts[s]);
  }
  ft::linear::put(factors, scale, accumulate, out, n, row, feature, sum);
}
