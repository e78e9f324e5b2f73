// Short causal convolution over the token axis with SiLU, over rows in order or over a
// tree, and bringing its state past an accepted path.
//
// Layouts: x, out [M, C]; weight [C, width], the last tap meets the current token; state
// [width - 1, C], oldest first. All F32.
//
// Launch: a thread for each channel, blocks of 128; along y, stretches of kStretch rows (of a
// tree kTreeStretch). Threads of the first stretch read the old state before they write the
// new one, and no others touch it. Weights, and the state where it is only read, are on their
// way before the kernel waits for its predecessor, which writes the inputs.
//
// Order of a sum: oldest tap first, one fused multiply-add after the other, whatever the
// row's place in the call; with a tree the same instructions run on the inputs of the
// ancestors. Bound: memory, 8 bytes a channel and row.

#include "ancestry.cuh"

namespace {

constexpr int kMaxWidth = 8;
constexpr int kStretch = 8;
constexpr int kTreeStretch = 2;
static_assert(kStretch >= kMaxWidth - 1, "only the first stretch may reach into the state");

// The last inputs of a channel, the current one last; the first 8 - width are not used.
struct Window {
  float x[kMaxWidth];
};

__device__ inline float filtered(const Window &window, const float (&taps)[kMaxWidth],
                                 int width) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kMaxWidth; ++j) {
    if (j >= kMaxWidth - width) sum = fmaf(taps[j], window.x[j], sum);
  }
  return sum / (1.0f + expf(-sum));
}

// One channel's column of a tensor of rows.
struct Column {
  const float *at;
  size_t stride;
  __device__ float operator[](int row) const { return at[row * stride]; }
};

__device__ inline void load_taps(float (&taps)[kMaxWidth], const float *weight, int channel,
                                 int width) {
#pragma unroll
  for (int j = 0; j < kMaxWidth; ++j) {
    const int tap = j - (kMaxWidth - width);
    taps[j] = tap >= 0 ? weight[size_t(channel) * width + tap] : 0.0f;
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128)
    short_conv(ft::Site site, const int *control, const float *x, const float *weight,
               float *state, float *out, int capacity, int channels, int width) {
  const int channel = blockIdx.x * blockDim.x + threadIdx.x;
  const bool there = channel < channels;
  float taps[kMaxWidth];
  if (there) load_taps(taps, weight, channel, width);
  const int rows = ft::live_rows(site, control, capacity);
  const int first = blockIdx.y * kStretch;
  if (first >= rows || !there) return;
  const int end = min(rows, first + kStretch);
  const int past = width - 1;
  const Column in{x + channel, size_t(channels)}, old{state + channel, size_t(channels)};
  // Input `at` of the call; before its first row, of the state.
  auto input = [&](int at) { return at >= 0 ? in[at] : old[past + at]; };
  Window window{};
#pragma unroll
  for (int j = 0; j + 1 < kMaxWidth; ++j) {
    if (j >= kMaxWidth - width) window.x[j] = input(first + j - (kMaxWidth - 1));
  }
  // What the state becomes; read before any of it is written.
  Window kept{};
  if (first == 0) {
#pragma unroll
    for (int j = 0; j + 1 < kMaxWidth; ++j) {
      if (j >= kMaxWidth - width) kept.x[j] = input(rows + j - (kMaxWidth - 1));
    }
  }
  for (int row = first; row < end; ++row) {
    window.x[kMaxWidth - 1] = in[row];
    out[size_t(row) * channels + channel] = filtered(window, taps, width);
#pragma unroll
    for (int j = 0; j + 1 < kMaxWidth; ++j) window.x[j] = window.x[j + 1];
  }
  if (first == 0) {
#pragma unroll
    for (int j = 0; j + 1 < kMaxWidth; ++j) {
      const int place = j - (kMaxWidth - width);
      if (place >= 0) state[size_t(place) * channels + channel] = kept.x[j];
    }
  }
}

extern "C" __global__ void __launch_bounds__(128)
    short_conv_tree(ft::Site site, const int *control, const int *parents, const int *depths,
                    const float *x, const float *weight, const float *state, float *out,
                    int capacity, int channels, int width) {
  __shared__ ft::Tree tree;
  const int channel = blockIdx.x * blockDim.x + threadIdx.x;
  const bool there = channel < channels;
  float taps[kMaxWidth];
  if (there) load_taps(taps, weight, channel, width);
  const int rows = ft::rows_ahead(site, control, capacity);
  const bool good = rows > 0 && ft::read_tree(site, parents, depths, rows, tree);
  ft::after_previous();
  if (!good || !there) return;
  const int first = blockIdx.y * kTreeStretch;
  const Column in{x + channel, size_t(channels)}, old{state + channel, size_t(channels)};
#pragma unroll
  for (int i = 0; i < kTreeStretch; ++i) {
    const int row = first + i;
    if (row >= rows) break;
    Window window{};
    int node = row, kept = width - 1;
#pragma unroll
    for (int j = kMaxWidth - 1; j >= 0; --j) {
      if (j < kMaxWidth - width) continue;
      if (node >= 0) {
        window.x[j] = in[node];
        node = tree.parents[node];
      } else {
        window.x[j] = old[--kept];
      }
    }
    out[size_t(row) * channels + channel] = filtered(window, taps, width);
  }
}

// The state after the path's rows. A thread for each channel. In old state and path
// together, the input that ends up at a place lies further on, since a path has a row at
// least: going up, none is lost before it moves.
extern "C" __global__ void __launch_bounds__(128)
    conv_commit(ft::Site site, const int *control, const int *words, const float *x,
                float *state, int path_capacity, int capacity, int channels, int past) {
  __shared__ int path[ft::kMaxTree];
  const int rows = ft::live_rows(site, control, capacity);
  const int count = ft::read_path(site, words, path_capacity, rows, path);
  const int channel = blockIdx.x * blockDim.x + threadIdx.x;
  if (count == 0 || channel >= channels) return;
  for (int place = 0; place < past; ++place) {
    const int from = place + count;
    const float value = from < past ? state[size_t(from) * channels + channel]
                                    : x[size_t(path[from - past]) * channels + channel];
    state[size_t(place) * channels + channel] = value;
  }
}
