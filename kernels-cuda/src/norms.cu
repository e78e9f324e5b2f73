// Root-mean-square norms of rows and of heads, in f32.
//
// rms_norm:   out[i, :] = x[first + i, :] / sqrt(mean(x^2) + eps) * weight
//             x [M, D], weight [D], out [M, D], all f32; out may be x.
//             One block to a row of `out`, its threads chosen from D alone.
// gated_norm: out = x / sqrt(mean(x^2) + eps) * weight * silu(z), head by head
//             x, z, out [M, H, dv], weight [dv], all f32; out may be x.
//             One warp to a head.
//
// Order of a sum of squares: each thread adds every T-th group of four elements, the four
// places of a group apart; then places, lanes and warps are folded. It depends on the width
// alone. Bound: memory; at few rows the latency of two passes over a row in L1.

#include "foretoken.cuh"
#include "reduce.cuh"

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
    float4 v = ft::load4(from, i, width, wide);
    const float4 w = ft::load4(weight, i, width, wide);
    v.x = v.x * factor * w.x;
    v.y = v.y * factor * w.y;
    v.z = v.z * factor * w.z;
    v.w = v.w * factor * w.w;
    ft::store4(to, i, width, v, wide);
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
    float4 v = ft::load4(x + at, i, width, wide);
    const float4 g = ft::load4(z + at, i, width, wide);
    const float4 w = ft::load4(weight, i, width, wide);
    v.x = v.x * factor * w.x * ft::silu(g.x);
    v.y = v.y * factor * w.y * ft::silu(g.y);
    v.z = v.z * factor * w.z * ft::silu(g.z);
    v.w = v.w * factor * w.w * ft::silu(g.w);
    ft::store4(out + at, i, width, v, wide);
  }
}
