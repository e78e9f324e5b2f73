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
// to a row; in gated_norm_pack a warp goes through every W-th head of W warps, and keeps
// heads of 128 values in registers.
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
  float4 weights[ft::kHeld][2];
  ft::each_held<1>(to, width, [&](int i, int half, int at) {
    weights[i][half] = ft::load4(weight, at, width, wide);
  });
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
  auto normed = [&](int i, float4 w) {
    const float4 y = scaled(ft::load4(from, i, width, wide), factor, w);
    ft::store4(at, i, width, y, wide);
    return y;
  };
  auto held = [&](int i, int half, int place) { return normed(place, weights[i][half]); };
  auto first = [&](int i) { return normed(i, ft::load4(weight, i, width, wide)); };
  auto again = [&](int i) { return ft::load4(at, i, width, wide); };
  ft::pack_row<1>(to, row, live, width, held, first, again);
}

namespace {

// One row of gated_norm, with all it takes.
struct GatedRow {
  const float *x, *z, *weight;
  float *out;
  int heads, width;
  float eps;
  bool wide;
};

// Heads that a warp keeps in registers.
constexpr int kHeldHeads = 2;

// Whether each warp can keep its heads, a lane four values of each.
__device__ bool fits(const GatedRow &row, const ft::PackTo &to) {
  const int warps = blockDim.x / 32;
  return row.wide && row.width == 128 && row.heads <= kHeldHeads * warps &&
         (to.order != ft::kBlocks || row.heads % 2 == 0);
}

// Norms and packs a row of heads of 128 values; `w` is the weight of the lane's values.
__device__ void pack_heads(const GatedRow &row, const ft::PackTo &to, int number, float4 w) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  float4 y[kHeldHeads], g[kHeldHeads];
#pragma unroll
  for (int h = 0; h < kHeldHeads; h++) {
    const int head = threadIdx.x / 32 + h * warps;
    if (head >= row.heads) break;
    const long long at = head * 128 + 4 * lane;
    y[h] = *reinterpret_cast<const float4 *>(row.x + at);
    g[h] = *reinterpret_cast<const float4 *>(row.z + at);
  }
  float largest = 0.0f;
#pragma unroll
  for (int h = 0; h < kHeldHeads; h++) {
    const int head = threadIdx.x / 32 + h * warps;
    if (head >= row.heads) break;
    // As `squares` has it.
    const float4 v = y[h];
    const float part = __fadd_rn(__fadd_rn(__fmul_rn(v.x, v.x), __fmul_rn(v.y, v.y)),
                                 __fadd_rn(__fmul_rn(v.z, v.z), __fmul_rn(v.w, v.w)));
    const float factor = ft::rms_factor(ft::warp_sum(part), 128, row.eps);
    y[h] = gated(v, factor, w, g[h]);
    *reinterpret_cast<float4 *>(row.out + head * 128 + 4 * lane) = y[h];
    largest = fmaxf(largest, ft::linear::largest_of(y[h]));
  }
  float up = 1.0f, down = 1.0f;
  if (to.order != ft::kBfloatScalars) {
    ft::linear::row_scale(ft::linear::block_largest(largest), up, down);
  }
  if (threadIdx.x == 0) to.factors[number] = down;
  // Two lanes have the fours of a piece.
  const bool blocks = to.order == ft::kBlocks;
  const int apart = blocks ? 8 : 1;
  uint4 *const at = to.row(number);
#pragma unroll
  for (int h = 0; h < kHeldHeads; h++) {
    const int head = threadIdx.x / 32 + h * warps;
    if (head >= row.heads) break;
    float4 more;
    more.x = __shfl_xor_sync(ft::kAllLanes, y[h].x, apart);
    more.y = __shfl_xor_sync(ft::kAllLanes, y[h].y, apart);
    more.z = __shfl_xor_sync(ft::kAllLanes, y[h].z, apart);
    more.w = __shfl_xor_sync(ft::kAllLanes, y[h].w, apart);
    if (lane & apart) continue;
    const int pair = blocks ? head / 2 * 8 + lane % 8 : head * 4 + lane / 8;
    const int t = blocks ? head % 2 * 2 + lane / 16 : lane % 8 / 2;
    const uint2 low = ft::linear::pack4(to.order, y[h], up);
    const uint2 high = ft::linear::pack4(to.order, more, up);
    to.place(at, pair * 4 + t) = make_uint4(low.x, low.y, high.x, high.y);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(1024)
    gated_norm_pack(ft::Site site, const int *control, const float *x, const float *z,
                    const float *weight, float *out, int capacity, int heads, int width,
                    float eps, unsigned wide, FT_PACK_PARAMETERS) {
  FT_PACK_TO;
  const int lane = threadIdx.x % 32, number = blockIdx.x, all = heads * width;
  const long long start = static_cast<long long>(number) * all;
  const GatedRow row{x + start, z + start, weight, out + start, heads, width, eps, wide != 0};
  const bool held = fits(row, to);
  const float4 w = held ? *reinterpret_cast<const float4 *>(weight + 4 * lane)
                        : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const int rows = ft::live_rows(site, control, capacity);
  if (number >= to.padded(rows)) return;
  const bool live = number < rows;
  if (live && held) return pack_heads(row, to, number, w);
  for (int head = threadIdx.x / 32; live && head < heads; head += blockDim.x / 32) {
    const long long at = head * width;
    const float part = ft::squares(row.x + at, width, wide, lane, 32);
    const float factor = ft::rms_factor(ft::warp_sum(part), width, eps);
    for (int i = 4 * lane; i < width; i += 4 * 32) {
      const float4 v = ft::load4(row.x + at, i, width, wide);
      const float4 g = ft::load4(row.z + at, i, width, wide);
      ft::store4(row.out + at, i, width,
                 gated(v, factor, ft::load4(weight, i, width, wide), g), wide);
    }
  }
  __syncthreads();
  // Heads that are whole groups of four make rows of such; a single one does not matter.
  auto read = [&](int i) { return ft::load4(row.out, i, all, wide); };
  ft::pack_row<1>(to, number, live, all, read, read);
}
