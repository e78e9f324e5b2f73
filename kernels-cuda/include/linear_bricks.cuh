// Products of up to 64 rows of activations with weights in bricks, on tensor cores.
//
// `out[m][n] = 2^e[m] * scale * sum_k w[n][k] x[m][k]`, x packed by `linear_pack` to f16 (a
// power of two of the row taken out) or bfloat16.
//
// Order of a sum, for every number of rows: units of inputs are cut into slices of
// `slice_units`, a slice into `runs` runs of as many units (the last may have fewer). Both
// depend on the shapes and types of the matrices of the launch, and on the GPU. Within a run
// one chain of products of 16 inputs, units and pairs ascending; runs are added up ascending,
// then slices.
//
// A block, one to a multiprocessor, has a range of the tiles, one slice of their inputs, and
// 8 * kColumns rows. It goes through its tiles `groups` at a time. Warp `groups * r + i` has
// the i-th of them in run r, the sums of all rows in registers. Bricks come straight to
// registers, each part as soon as the same part of the brick before is used up; the first
// ones are asked for before the kernel waits for its predecessor, which never writes weights.
// Activations go through two stages of shared memory, [stage][run][unit]; behind them is what
// runs exchange.
// Grid (ranges, slices, rows), 32 * groups * runs threads; shared memory as in plan.rs of the
// driver; bound by the bytes of the weight.
#pragma once

#include "linear_tile.cuh"

namespace ft::linear {

// The products of a brick: a part of its codes at a time, of `part_of(v)`; activations of the
// unit are [pair][column][lane]. `used(v)` follows each part.
template <class Type, int kColumns, class PartOf, class Used>
__device__ inline void multiply(const Type &type, const uint4 *activations, PartOf part_of,
                                Used used, float (&sums)[kColumns][4]) {
#pragma unroll
  for (int v = 0; v < Type::kParts; v++) {
    const typename Type::Part &part = part_of(v);
#pragma unroll
    for (int w = 0; w < Type::kPartPairs; w++) {
      const int pair = v * Type::kPartPairs + w;
      uint4 b[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; c++) b[c] = activations[(pair * kColumns + c) * 32];
      uint32_t a[2][4];
      type.pair(part, v, w, a);
#pragma unroll
      for (int c = 0; c < kColumns; c++) {
        mma<Type::kBfloat>(sums[c], a[0], b[c].x, b[c].y);
        mma<Type::kBfloat>(sums[c], a[1], b[c].z, b[c].w);
      }
    }
    used(v);
  }
}

template <class Type, int kColumns>
__device__ inline void step(Site site, const int *control, unsigned set, int inputs, int outputs,
                            const Step &o, const Matrices &matrices) {
  extern __shared__ uint4 shared[];
  using Read = brick::Streamed;
  constexpr int kWords = Type::kPairs * kColumns * 32;  // of activations, in a unit
  const int lane = threadIdx.x % 32;
  const Share share(o, threadIdx.x / 32);

  // Where the warp's tile of the pass that begins with `tile` has its first brick; a tile
  // past the end is the last.
  auto brick_of = [&](int tile) {
    const int mine = min(tile + share.group, share.end_tile - 1);
    const Matrix matrix = pick(matrices, mine);
    const int64_t before = static_cast<int64_t>(mine - matrix.first) * o.units + share.begin;
    return matrix.weight + before * Type::kBytes;
  };
  typename Type::Head head;
  typename Type::Part parts[Type::kParts];
  const uint8_t *brick = brick_of(share.first_tile);
  if (share.own_units > 0) {
    head = Type::template head<Read>(brick, lane);
#pragma unroll
    for (int v = 0; v < Type::kParts; v++) parts[v] = Type::template part<Read>(brick, lane, v);
  }
  const Rows rows = row_set(site, control, set, inputs, outputs);
  if (static_cast<int>(blockIdx.z) * 8 * kColumns >= rows.count) return;

  // Activations of the i-th unit of each run, by the run's warps.
  const int all = gridDim.z * kColumns;  // 8-row tiles
  const uint4 *const column = o.packed + blockIdx.z * kColumns * 32;
  auto load = [&](int stage, int i) {
    const int64_t unit = min(share.begin + i, share.last - 1);
    const uint4 *from = column + unit * Type::kPairs * all * 32;
    uint4 *to = shared + (stage * o.runs + share.run) * kWords;
    for (int at = share.group * 32 + lane; at < kWords; at += o.groups * 32) {
      const int pair = at / (kColumns * 32), rest = at % (kColumns * 32);
      copy16(to + at, from + pair * all * 32 + rest);
    }
    copies_commit();
  };
  load(0, 0);
  int stage = 0;
  for (int tile = share.first_tile; tile < share.end_tile; tile += o.groups) {
    const bool more_tiles = tile + o.groups < share.end_tile;
    float sums[kColumns][4] = {};
    for (int i = 0; i < share.run_units; i++) {
      copies_wait<0>();
      // The unit is there for all, and everyone is done with the stage that is filled next.
      __syncthreads();
      const bool more_units = i + 1 < share.run_units;
      if (more_units || more_tiles) load(stage ^ 1, more_units ? i + 1 : 0);
      if (i < share.own_units) {
        const bool more = i + 1 < share.own_units || more_tiles;
        Type type;
        type.begin(head);
        brick += Type::kBytes;
        if (i + 1 == share.own_units && more) brick = brick_of(tile + o.groups);
        if (more) head = Type::template head<Read>(brick, lane);
        multiply<Type, kColumns>(
            type, shared + (stage * o.runs + share.run) * kWords + lane,
            [&](int v) -> const typename Type::Part & { return parts[v]; },
            [&](int v) {
              if (more) parts[v] = Type::template part<Read>(brick, lane, v);
            },
            sums);
      }
      stage ^= 1;
    }
    if (o.runs > 1) {
      float4 *const exchange = reinterpret_cast<float4 *>(shared + 2 * o.runs * kWords);
      add_runs(o, share, exchange, tile != share.first_tile, sums);
    }
    const int mine = tile + share.group;
    if (share.run == 0 && mine < share.end_tile) end_tile(o, matrices, rows, mine, sums);
  }
}

}  // namespace ft::linear

// `linear_step_TYPE_COLUMNS`.
#define FT_BRICK_STEP(type, Type, columns)                                                       \
  extern "C" __global__ __launch_bounds__(32 * ft::linear::kStepWarps, 1)                        \
      void linear_step_##type##_##columns(                                                       \
          ft::Site site, const int *control, unsigned set, int inputs, int outputs,              \
          const uint4 *packed, const float *factors, ft::linear::Matrices matrices, int tiles,   \
          int units, int slice_units, int groups, int runs, float4 *planes,                      \
          unsigned *arrivals) {                                                                  \
    ft::linear::step<Type, columns / 8>(                                                         \
        site, control, set, inputs, outputs,                                                     \
        ft::linear::Step{packed, factors, tiles, units, slice_units, groups, runs, planes,        \
                         arrivals},                                                              \
        matrices);                                                                               \
  }

// More rows than 32 take several blocks.
#define FT_BRICK_STEPS(type, Type) \
  FT_BRICK_STEP(type, Type, 8)     \
  FT_BRICK_STEP(type, Type, 16)    \
  FT_BRICK_STEP(type, Type, 24)    \
  FT_BRICK_STEP(type, Type, 32)
