// Around the products: activations as they read them, and sums of their slices.

#include "linear.cuh"
#include "pack.cuh"

// Packs rows of `x`, [inputs][k]: pack.cuh.
// Grid: one block of whole warps for each row. Bound: one way to memory and one reduction.
extern "C" __global__ __launch_bounds__(ft::kPackThreads) void linear_pack(
    ft::Site site, const int *control, unsigned set, int inputs, int outputs, const float *x,
    int k, FT_PACK_PARAMETERS) {
  FT_PACK_TO;
  const ft::Rows rows = ft::row_set(site, control, set, inputs, outputs);
  const int row = blockIdx.x;
  if (row >= to.padded(rows.count)) return;
  const bool live = row < rows.count;
  const float *from = x + static_cast<int64_t>(rows.first + (live ? row : 0)) * k;
  const bool wide = k % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
  auto read = [&](int i) { return ft::load4(from, i, k, wide); };
  ft::pack_row<1>(to, row, live, k, read, read);
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
