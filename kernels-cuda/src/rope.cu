// Rotary position embedding (NeoX pairs).
//
// rope_angles:  out[i, j] = cos, out[i, half + j] = sin of positions[i] * theta^(-2j / dims);
//               positions [M] i32, out [M, dims] f32. The angle is taken in f64: in f32 one
//               of 2^18 would be off by 1e-2. A thread has one j and eight rows. Bound: f64
//               arithmetic, a few hundred operations to an angle.
// qk_norm_rope: per head x / sqrt(mean(x^2) + eps) * norm, then the pairs (j, j + half) of
//               its first `rotary` values turned by the row's angles, in place. Two groups of
//               heads to a launch, each x [M, H, stride] f32 with norm [head_dim] f32.
//               One warp to a head; the sum of squares as in norms.cu, so its order depends
//               on head_dim alone. Bound: memory, at few rows latency.

#include "foretoken.cuh"
#include "reduce.cuh"

namespace {

// Rows that a thread of rope_angles takes; ops/rope.rs of the driver knows it.
constexpr int kRowsPerThread = 8;

}  // namespace

extern "C" __global__ void __launch_bounds__(128)
    rope_angles(ft::Site site, const int *control, const int *positions, double theta,
                float *out, int capacity, int half) {
  const int rows = ft::live_rows(site, control, capacity);
  const int first = blockIdx.x * kRowsPerThread;
  if (first >= rows) return;
  for (int j = threadIdx.x; j < half; j += blockDim.x) {
    // In half turns, whose reduction is exact and short.
    const double frequency = pow(theta, -2.0 * j / (2.0 * half)) * 0.31830988618379067154;
    for (int row = first; row < min(first + kRowsPerThread, rows); row++) {
      double sine, cosine;
      sincospi(positions[row] * frequency, &sine, &cosine);
      float *to = out + static_cast<long long>(row) * (2 * half);
      to[j] = static_cast<float>(cosine);
      to[half + j] = static_cast<float>(sine);
    }
  }
}

extern "C" __global__ void __launch_bounds__(128)
    qk_norm_rope(ft::Site site, const int *control, const float *angles, int capacity,
                 int head_dim, int half, float eps, float *x0, const float *norm0, int heads0,
                 int stride0, float *x1, const float *norm1, int heads1, int stride1,
                 unsigned wide) {
  const int rows = ft::live_rows(site, control, capacity);
  const int lane = threadIdx.x % 32, heads = heads0 + heads1;
  const long long item = static_cast<long long>(blockIdx.x) * 4 + threadIdx.x / 32;
  const long long row = item / heads;
  if (row >= rows) return;
  const int head = static_cast<int>(item % heads);
  const bool second = head >= heads0;
  const float *norm = second ? norm1 : norm0;
  float *x = second ? x1 + (row * heads1 + (head - heads0)) * stride1
                    : x0 + (row * heads0 + head) * stride0;
  // The last load of the sum comes before the first shuffle ends, in every lane: what
  // follows may write.
  const float part = ft::squares(x, head_dim, wide, lane, 32);
  const float factor = ft::rms_factor(ft::warp_sum(part), head_dim, eps);
  const float *cosines = angles + row * (2 * half), *sines = cosines + half;
  for (int j = lane; j < half; j += 32) {
    const float a = x[j] * factor * norm[j];
    const float b = x[half + j] * factor * norm[half + j];
    x[j] = fmaf(a, cosines[j], -(b * sines[j]));
    x[half + j] = fmaf(a, sines[j], b * cosines[j]);
  }
  for (int j = 2 * half + lane; j < head_dim; j += 32) x[j] = x[j] * factor * norm[j];
}
