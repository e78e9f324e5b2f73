// Elementwise gates, in f32.
//
// swiglu:      out = silu(gate) * up; [M, F], out may be gate or up.
// output_gate: x *= sigmoid(gate); x [M, H, d] in place, the gate is the second half of
//              each head's row in q [M, H, 2 d].
//
// A block takes 1024 neighbouring elements of one row, a thread four of them. Bound: memory.

#include "foretoken.cuh"
#include "reduce.cuh"

namespace {

// Elements of a row that a block takes; ops/activation.rs of the driver knows it.
constexpr int kTile = 1024;

// The row and the first element of a thread, in a grid of `tiles` blocks to a row.
struct Place {
  long long row;
  int first;
};

__device__ Place place(int tiles) {
  const int row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  return Place{row, tile * kTile + 4 * static_cast<int>(threadIdx.x)};
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
    swiglu(ft::Site site, const int *control, const float *gate, const float *up, float *out,
           int capacity, int width, int tiles, unsigned wide) {
  const int rows = ft::live_rows(site, control, capacity);
  const Place at = place(tiles);
  if (at.row >= rows || at.first >= width) return;
  const long long start = at.row * width;
  const float4 g = ft::load4(gate + start, at.first, width, wide);
  const float4 u = ft::load4(up + start, at.first, width, wide);
  const float4 y = make_float4(ft::silu(g.x) * u.x, ft::silu(g.y) * u.y, ft::silu(g.z) * u.z,
                               ft::silu(g.w) * u.w);
  ft::store4(out + start, at.first, width, y, wide);
}

extern "C" __global__ void __launch_bounds__(256)
    output_gate(ft::Site site, const int *control, const float *q, float *x, int capacity,
                int heads, int head_dim, int tiles, unsigned wide) {
  const int rows = ft::live_rows(site, control, capacity);
  const Place at = place(tiles);
  const int width = heads * head_dim;
  if (at.row >= rows || at.first >= width) return;
  float *row = x + at.row * width;
  const float *gates = q + 2 * at.row * width;
  if (wide) {
    // A head is whole groups of four.
    const int head = at.first / head_dim;
    const float4 g = ft::load4(gates, at.first + (head + 1) * head_dim, 2 * width, true);
    float4 y = ft::load4(row, at.first, width, true);
    y.x *= ft::sigmoid(g.x);
    y.y *= ft::sigmoid(g.y);
    y.z *= ft::sigmoid(g.z);
    y.w *= ft::sigmoid(g.w);
    ft::store4(row, at.first, width, y, true);
    return;
  }
  for (int i = at.first; i < min(at.first + 4, width); i++) {
    row[i] *= ft::sigmoid(gates[i + (i / head_dim + 1) * head_dim]);
  }
}
