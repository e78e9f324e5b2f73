// Elementwise gates, in f32.
//
// swiglu:      out = silu(gate) * up; [M, F], out may be gate or up.
// output_gate: x *= sigmoid(gate); x [M, H, d] in place, the gate is the second half of
//              each head's row in q [M, H, 2 d].
//
// A block takes 1024 neighbouring elements of one row, a thread four of them. Bound: memory.
// For a product that follows, `*_pack` packs the rows as well: one block to a row.

#include "foretoken.cuh"
#include "pack.cuh"
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

__device__ float4 swiglu4(const float *gate, const float *up, int i, int width, bool wide) {
  const float4 g = ft::load4(gate, i, width, wide), u = ft::load4(up, i, width, wide);
  return make_float4(ft::silu(g.x) * u.x, ft::silu(g.y) * u.y, ft::silu(g.z) * u.z,
                     ft::silu(g.w) * u.w);
}

// Four elements of a row, whose gates are in a row twice as wide.
__device__ float4 gate4(const float *gates, const float *row, int i, int head_dim, int width,
                        bool wide) {
  if (wide) {
    // A head is whole groups of four.
    const float4 g = ft::load4(gates, i + (i / head_dim + 1) * head_dim, 2 * width, true);
    const float4 y = ft::load4(row, i, width, true);
    return make_float4(y.x * ft::sigmoid(g.x), y.y * ft::sigmoid(g.y), y.z * ft::sigmoid(g.z),
                       y.w * ft::sigmoid(g.w));
  }
  float y[4] = {};
  for (int j = 0; j < min(4, width - i); j++) {
    y[j] = row[i + j] * ft::sigmoid(gates[i + j + ((i + j) / head_dim + 1) * head_dim]);
  }
  return make_float4(y[0], y[1], y[2], y[3]);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
    swiglu(ft::Site site, const int *control, const float *gate, const float *up, float *out,
           int capacity, int width, int tiles, unsigned wide) {
  const int rows = ft::live_rows(site, control, capacity);
  const Place at = place(tiles);
  if (at.row >= rows || at.first >= width) return;
  const long long start = at.row * width;
  ft::store4(out + start, at.first, width,
             swiglu4(gate + start, up + start, at.first, width, wide), wide);
}

extern "C" __global__ void __launch_bounds__(256)
    output_gate(ft::Site site, const int *control, const float *q, float *x, int capacity,
                int heads, int head_dim, int tiles, unsigned wide) {
  const int rows = ft::live_rows(site, control, capacity);
  const Place at = place(tiles);
  const int width = heads * head_dim;
  if (at.row >= rows || at.first >= width) return;
  float *row = x + at.row * width;
  ft::store4(row, at.first, width,
             gate4(q + 2 * at.row * width, row, at.first, head_dim, width, wide), wide);
}

extern "C" __global__ void FT_SPREAD __launch_bounds__(1024)
    swiglu_pack(ft::Site site, const int *control, const float *gate, const float *up, float *out,
                int capacity, int width, unsigned wide, FT_PACK_PARAMETERS) {
  FT_PACK_TO;
  const int rows = ft::live_rows(site, control, capacity), row = blockIdx.x / ft::kSpread;
  if (row >= to.padded(rows)) return;
  const long long start = static_cast<long long>(row) * width;
  auto first = [&](int i) {
    const float4 y = swiglu4(gate + start, up + start, i, width, wide);
    ft::store4(out + start, i, width, y, wide);
    return y;
  };
  auto again = [&](int i) { return ft::load4(out + start, i, width, wide); };
  ft::pack_row<ft::kSpread>(to, row, row < rows, width, first, again);
}

extern "C" __global__ void __launch_bounds__(1024)
    output_gate_pack(ft::Site site, const int *control, const float *q, float *x, int capacity,
                     int heads, int head_dim, unsigned wide, FT_PACK_PARAMETERS) {
  FT_PACK_TO;
  const int rows = ft::live_rows(site, control, capacity), row = blockIdx.x;
  if (row >= to.padded(rows)) return;
  const int width = heads * head_dim;
  float *const from = x + static_cast<long long>(row) * width;
  const float *const gates = q + 2 * static_cast<long long>(row) * width;
  auto first = [&](int i) {
    const float4 y = gate4(gates, from, i, head_dim, width, wide);
    ft::store4(from, i, width, y, wide);
    return y;
  };
  auto again = [&](int i) { return ft::load4(from, i, width, wide); };
  ft::pack_row<1>(to, row, row < rows, width, first, again);
}
