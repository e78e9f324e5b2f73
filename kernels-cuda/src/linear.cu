// Around the products: activations as they read them, and sums of their slices.

#include "activations.cuh"
#include "linear.cuh"

using ft::linear::Row;
using ft::linear::kBfloatScalars, ft::linear::kBlocks, ft::linear::kPackThreads;

// Packs rows of `x`, [inputs][k], into B operands: [group][pair][8-row tile][lane][16 bytes],
// lane `4 g + t` having row g of the tile, `tiles` tiles to a group. For f16 the largest
// magnitude of a row is scaled into 2^14 .. 2^15 by a power of two (down from 2^-100 at
// least), whose inverse is its factor; smaller values keep eleven bits down to 2^-28 of the
// largest. NaN and infinity stay what they are. Inputs past k and rows that fill up a group
// are zero.
// Grid: one block of whole warps for each row; a row alone decides its bits. A thread has
// every blockDim-th piece of two times four inputs, the first kHeld of them read once.
// Bound: one way to memory and one reduction.
extern "C" __global__ __launch_bounds__(kPackThreads) void linear_pack(
    ft::Site site, const int *control, unsigned set, int inputs, int outputs, const float *x,
    int k, unsigned order, int pairs, int tiles, uint4 *packed, float *factors) {
  constexpr int kHeld = 3;
  const ft::Rows rows = ft::row_set(site, control, set, inputs, outputs);
  const int row = blockIdx.x;
  const int whole = 8 * tiles;
  if (row >= (rows.count + whole - 1) / whole * whole) return;
  const int group = row / 8 / tiles, tile = row / 8 % tiles;
  uint4 *to = packed + (static_cast<int64_t>(group) * pairs * tiles + tile) * 32 + row % 8 * 4;
  const int pieces = pairs * 4;
  auto place = [&](int piece) -> uint4 & {
    return to[static_cast<int64_t>(piece / 4) * tiles * 32 + piece % 4];
  };
  if (row >= rows.count) {
    for (int piece = threadIdx.x; piece < pieces; piece += blockDim.x) {
      place(piece) = make_uint4(0, 0, 0, 0);
    }
    if (threadIdx.x == 0) factors[row] = 1.0f;
    return;
  }

  const Row from(x + static_cast<int64_t>(rows.first + row) * k, k);
  const int apart = order == kBlocks ? 32 : 4;
  auto first_of = [&](int piece) {
    const int pair = piece / 4, t = piece % 4;
    return order == kBlocks ? pair / 8 * 256 + 64 * t + pair % 8 * 4 : pair * 32 + 8 * t;
  };
  float4 held[kHeld][2];
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece >= pieces) break;
    held[i][0] = from.at(first_of(piece));
    held[i][1] = from.at(first_of(piece) + apart);
  }
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    if (static_cast<int>(threadIdx.x + i * blockDim.x) >= pieces) break;
    largest = fmaxf(largest, fmaxf(ft::linear::largest_of(held[i][0]), ft::linear::largest_of(held[i][1])));
  }
  for (int piece = threadIdx.x + kHeld * blockDim.x; piece < pieces; piece += blockDim.x) {
    const float4 a = from.at(first_of(piece)), b = from.at(first_of(piece) + apart);
    largest = fmaxf(largest, fmaxf(ft::linear::largest_of(a), ft::linear::largest_of(b)));
  }
  float up = 1.0f, down = 1.0f;
  if (order != kBfloatScalars) {
    ft::linear::row_scale(ft::linear::block_largest(largest), up, down);
  }
  if (threadIdx.x == 0) factors[row] = down;
  auto put = [&](int piece, float4 a, float4 b) {
    const uint2 low = ft::linear::pack4(order, a, up), high = ft::linear::pack4(order, b, up);
    place(piece) = make_uint4(low.x, low.y, high.x, high.y);
  };
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece < pieces) put(piece, held[i][0], held[i][1]);
  }
  for (int piece = threadIdx.x + kHeld * blockDim.x; piece < pieces; piece += blockDim.x) {
    put(piece, from.at(first_of(piece)), from.at(first_of(piece) + apart));
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
