// Root-mean-square norms of rows and of heads, in f32.
//
// rms_norm:   out[i, :] = x[first + i, :] / sqrt(mean(x^2) + eps) * weight
//             x [M, D], weight [D], out [M, D], all f32; out may be x.
//             One block to a row of `out`, its threads chosen from D alone.
// gated_norm: out = x / sqrt(mean(x^2) + eps) * weight * silu(z), head by head
//             x, z, out [M, H, dv], weight [dv], all f32; out may be x.
//             One warp to a head.
//
// The same for products that follow, `*_pack`: they pack the rows of `out` as well. One block
// to a row; in gated_norm_pack a warp goes through every 32nd head.
//
// Order of a sum of squares: each thread adds every T-th group of four elements, the four
// places of a group apart; then places, lanes and warps are folded. It depends on the width
// alone. Bound: memory; at few rows the latency of two passes over a row in L1.

#include "foretoken.cuh"
#include "pack.cuh"
#include "reduce.cuh"

namespace {

__device__ float4 scaled(float4 v, float factor, float4 w) {
  return make_float4(v.x * factor * w.x, v.y * factor * w.y, v.z * factor * w.z,
                     v.w * factor * w.w);
}

__device__ float4 gated(float4 v, float factor, float4 w, float4 g) {
  v = scaled(v, factor, w);
  return make_float4(v.x * ft::silu(g.x), v.y * ft::silu(g.y), v.z * ft::silu(g.z),
                     v.w * ft::silu(g.w));
}

}  // namespace

extern "C" __global__ void __launch_bounds__(1024)
    rms_norm(ft::Site site, const int *control, unsigned set, const float *x,
             const float *weight, float *out, int in_rows, int out_rows, int width, float eps,
             unsigned wide) {
  __shared__ float partials[32];
  const ft::Rows rows = ft::row_set(site, control, set, in_rows, out_rows);
  const int row = blockIdx.x;
  if (row >= rows.count) return;
  const float *from = x + static_cast<long long>(rows.first + row) * width;
  float *to = out + static_cast<long long>(row) * width;
  const float part = ft::squares(from, width, wide, threadIdx.x, blockDim.x);
  const float factor = ft::rms_factor(ft::block_sum(part, partials), width, eps);
  for (int i = 4 * threadIdx.x; i < width; i += 4 * blockDim.x) {
    const float4 v = ft::load4(from, i, width, wide);
    const float4 w = ft::load4(weight, i, width, wide);
    ft::store4(to, i, width, scaled(v, factor, w), wide);
  }
}

extern "C" __global__ void __launch_bounds__(128)
    gated_norm(ft::Site site, const int *control, const float *x, const float *z,
               const float *weight, float *out, int capacity, int heads, int width, float eps,
               unsigned wide) {
  const int rows = ft::live_rows(site, control, capacity);
  const int lane = threadIdx.x % 32;
  const long long head = static_cast<long long>(blockIdx.x) * 4 + threadIdx.x / 32;
  if (head >= static_cast<long long>(rows) * heads) return;
  const long long at = head * width;
  const float part = ft::squares(x + at, width, wide, lane, 32);
  const float factor = ft::rms_factor(ft::warp_sum(part), width, eps);
  for (int i = 4 * lane; i < width; i += 4 * 32) {
    const float4 v = ft::load4(x + at, i, width, wide);
    const float4 g = ft::load4(z + at, i, width, wide);
    const float4 w = ft::load4(weight, i, width, wide);
    ft::store4(out + at, i, width, gated(v, factor, w, g), wide);
  }
}

extern "C" __global__ void __launch_bounds__(1024)
    rms_norm_pack(ft::Site site, const int *control, unsigned set, const float *x,
                  const float *weight, float *out, int in_rows, int out_rows, int width,
                  float eps, unsigned wide, FT_PACK_PARAMETERS) {
  __shared__ float partials[32];
  FT_PACK_TO;
  // No kernel writes weights: they come while the kernel waits.
  for (int i = 32 * threadIdx.x; i < width; i += 32 * blockDim.x) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(weight + i));
  }
  const ft::Rows rows = ft::row_set(site, control, set, in_rows, out_rows);
  const int row = blockIdx.x;
  if (row >= to.padded(rows.count)) return;
  const bool live = row < rows.count;
  const float *from = x + static_cast<long long>(rows.first + (live ? row : 0)) * width;
  float *at = out + static_cast<long long>(row) * width;
  float factor = 0.0f;
  if (live) {
    const float part = ft::squares(from, width, wide, threadIdx.x, blockDim.x);
    factor = ft::rms_factor(ft::block_sum(part, partials), width, eps);
  }
  auto first = [&](int i) {
    const float4 v = ft::load4(from, i, width, wide), w = ft::load4(weight, i, width, wide);
    const float4 y = scaled(v, factor, w);
    ft::store4(at, i, width, y, wide);
    return y;
  };
  auto again = [&](int i) { return ft::load4(at, i, width, wide); };
  ft::pack_row<1>(to, row, live, width, first, again);
}

extern "C" __global__ void __launch_bounds__(1024)
    gated_norm_pack(ft::Site site, const int *control, const float *x, const float *z,
                    const float *weight, float *out, int capacity, int heads, int width,
                    float eps, unsigned wide, FT_PACK_PARAMETERS) {
  FT_PACK_TO;
  const int rows = ft::live_rows(site, control, capacity);
  const int row = blockIdx.x, lane = threadIdx.x % 32, all = heads * width;
  if (row >= to.padded(rows)) return;
  const bool live = row < rows;
  const long long start = static_cast<long long>(row) * all;
  for (int head = threadIdx.x / 32; live && head < heads; head += blockDim.x / 32) {
    const long long at = start + head * width;
    const float part = ft::squares(x + at, width, wide, lane, 32);
    const float factor = ft::rms_factor(ft::warp_sum(part), width, eps);
    for (int i = 4 * lane; i < width; i += 4 * 32) {
      const float4 v = ft::load4(x + at, i, width, wide);
      const float4 g = ft::load4(z + at, i, width, wide);
      const float4 w = ft::load4(weight, i, width, wide);
      ft::store4(out + at, i, width, gated(v, factor, w, g), wide);
    }
  }
  __syncthreads();
  // Heads that are whole groups of four make rows of such; a single one does not matter.
  auto read = [&](int i) { return ft::load4(out + start, i, all, wide); };
  ft::pack_row<1>(to, row, live, all, read, read);
}
