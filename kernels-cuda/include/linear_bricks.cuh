// Products of up to 64 rows of activations with weights in bricks, on tensor cores.
//
// `out[m][n] = 2^e[m] * scale * sum_k w[n][k] x[m][k]`, x packed by `linear_pack` to f16 (a
// power of two of the row taken out) or bfloat16.
//
// Order of a sum, for every number of rows: units of inputs are cut into slices of
// `slice_units`, a slice into `runs` runs of as many units (the last may have fewer). Both
// depend on the shapes and types of the matrices of the launch, and on the GPU. Within a run
// one chain of products of 16 inputs, units and pairs ascending; runs are added up ascending,
// then slices. With helpers, which there are when there is one run, the last `tail` units of a
// slice are a run of their own.
//
// A block, one to a multiprocessor, has a range of the tiles, one slice of their inputs, and
// 8 * kColumns rows. It goes through its tiles `groups` at a time. Warp `groups * r + i` has
// the i-th of them in run r, the sums of all rows in registers. Bricks come straight to
// registers, each part as soon as the same part of the brick before is used up; the first
// ones are asked for before the kernel waits for its predecessor, which never writes weights.
// Activations go through two stages of shared memory, [stage][run][unit]; behind them is what
// runs exchange, then the units of the helpers. These are warps more, for blocks that have
// one pass of fewer tiles than there could be warps: the i-th takes the tail of every
// `helpers`-th tile from the i-th on, so that all warps have the same to do.
// Grid (ranges, slices, rows), 32 * (groups * runs + helpers) threads; shared memory as in
// plan.rs of the driver; bound by the bytes of the weight.
#pragma once

#include "linear_tile.cuh"

namespace ft::linear {

// Some of a block's threads meet: those of barrier `number`.
__device__ inline void meet(int number, int warps) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(32 * warps) : "memory");
}

// A stored brick in registers.
template <class Type>
struct Loaded {
  typename Type::Head head;
  typename Type::Part parts[Type::kParts];

  __device__ void load(const uint8_t *brick, int lane) {
    head = Type::template head<brick::Streamed>(brick, lane);
#pragma unroll
    for (int v = 0; v < Type::kParts; v++) {
      parts[v] = Type::template part<brick::Streamed>(brick, lane, v);
    }
  }

  // Adds the products of the brick to the sums, and puts the next one in its place.
  template <int kColumns>
  __device__ void use(const uint4 *activations, const uint8_t *next, bool more, int lane,
                      float (&sums)[kColumns][4]) {
    Type type;
    type.begin(head);
    if (more) head = Type::template head<brick::Streamed>(next, lane);
#pragma unroll
    for (int v = 0; v < Type::kParts; v++) {
#pragma unroll
      for (int w = 0; w < Type::kPartPairs; w++) {
        const int pair = v * Type::kPartPairs + w;
        uint4 b[kColumns];
#pragma unroll
        for (int c = 0; c < kColumns; c++) b[c] = activations[(pair * kColumns + c) * 32];
        uint32_t a[2][4];
        type.pair(parts[v], v, w, a);
#pragma unroll
        for (int c = 0; c < kColumns; c++) {
          mma<Type::kBfloat>(sums[c], a[0], b[c].x, b[c].y);
          mma<Type::kBfloat>(sums[c], a[1], b[c].z, b[c].w);
        }
      }
      if (more) parts[v] = Type::template part<brick::Streamed>(next, lane, v);
    }
  }
};

template <class Type, int kColumns>
__device__ inline void step(Site site, const int *control, unsigned set, int inputs, int outputs,
                            const Step &o, const Matrices &matrices) {
  extern __shared__ uint4 shared[];
  constexpr int kWords = Type::kPairs * kColumns * 32;  // of activations, in a unit
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, workers = o.groups * o.runs;
  const Share share(o, warp);
  const int helper = Type::kHelped ? warp - workers : -1;  // not negative for helpers

  auto brick_of = [&](int tile, int unit) {
    const Matrix matrix = pick(matrices, tile);
    const int64_t before = static_cast<int64_t>(tile - matrix.first) * o.units + unit;
    return matrix.weight + before * Type::kBytes;
  };
  // The warp's first brick of the pass that begins with `tile`; a tile past the end is the
  // last.
  const int place = helper >= 0 ? helper : share.group;
  const int first_unit = helper >= 0 ? share.last - o.tail : share.begin;
  auto first_of = [&](int tile) {
    return brick_of(min(tile + place, share.end_tile - 1), first_unit);
  };
  Loaded<Type> loaded;
  const uint8_t *brick = first_of(share.first_tile);
  if (helper >= 0 || share.own_units > 0) loaded.load(brick, lane);
  const Rows rows = row_set(site, control, set, inputs, outputs);
  if (static_cast<int>(blockIdx.z) * 8 * kColumns >= rows.count) return;

  // Activations of a unit, by some threads.
  const int all = gridDim.z * kColumns;  // 8-row tiles
  const uint4 *const column = o.packed + blockIdx.z * kColumns * 32;
  auto bring = [&](uint4 *to, int64_t unit, int thread, int threads) {
    const uint4 *from = column + unit * Type::kPairs * all * 32;
    for (int at = thread; at < kWords; at += threads) {
      const int pair = at / (kColumns * 32), rest = at % (kColumns * 32);
      copy16(to + at, from + pair * all * 32 + rest);
    }
  };
  float4 *const exchange = reinterpret_cast<float4 *>(shared + 2 * o.runs * kWords);
  if (helper >= 0) {
    uint4 *const units =
        reinterpret_cast<uint4 *>(exchange + o.groups * kColumns * 32);
    for (int u = 0; u < o.tail; u++) {
      bring(units + u * kWords, share.last - o.tail + u, 32 * helper + lane, 32 * o.helpers);
    }
    copies_commit();
    copies_wait<0>();
    meet(2, o.helpers);
    for (int tile = share.first_tile + helper; tile < share.end_tile; tile += o.helpers) {
      const bool more_tiles = tile + o.helpers < share.end_tile;
      float sums[kColumns][4] = {};
      for (int u = 0; u < o.tail; u++) {
        const bool last = u + 1 == o.tail;
        brick = last && more_tiles ? brick_of(tile + o.helpers, first_unit) : brick + Type::kBytes;
        loaded.use(units + u * kWords + lane, brick, !last || more_tiles, lane, sums);
      }
      leave(exchange + (tile - share.first_tile) * kColumns * 32 + lane, sums);
    }
    return __syncthreads();
  }

  auto load = [&](int stage, int i) {
    bring(shared + (stage * o.runs + share.run) * kWords, min(share.begin + i, share.last - 1),
          share.group * 32 + lane, o.groups * 32);
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
      meet(1, workers);
      const bool more_units = i + 1 < share.run_units;
      if (more_units || more_tiles) load(stage ^ 1, more_units ? i + 1 : 0);
      if (i < share.own_units) {
        const bool last = i + 1 == share.own_units;
        brick = last && more_tiles ? first_of(tile + o.groups) : brick + Type::kBytes;
        loaded.use(shared + (stage * o.runs + share.run) * kWords + lane, brick,
                   !last || more_tiles, lane, sums);
      }
      stage ^= 1;
    }
    if (o.runs > 1 || o.helpers > 0) {
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
          int units, int slice_units, int groups, int runs, int helpers, int tail,               \
          float4 *planes, unsigned *arrivals) {                                                  \
    ft::linear::step<Type, columns / 8>(                                                         \
        site, control, set, inputs, outputs,                                                     \
        ft::linear::Step{packed, factors, tiles, units, slice_units, groups, runs, helpers,       \
                         tail, planes, arrivals},                                                \
        matrices);                                                                               \
  }

// More rows than 32 take several blocks.
#define FT_BRICK_STEPS(type, Type) \
  FT_BRICK_STEP(type, Type, 8)     \
  FT_BRICK_STEP(type, Type, 16)    \
  FT_BRICK_STEP(type, Type, 24)    \
  FT_BRICK_STEP(type, Type, 32)
