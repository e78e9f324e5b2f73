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
#pragma once

#include "brick.cuh"
#include "foretoken.cuh"

namespace ft::linear {

// One of the matrices that a launch multiplies. The driver knows the same (`Matrix`).
struct Matrix {
  const uint8_t *weight;
  float *out;  // [rows][n]
  int n;
  int first;  // of its tiles of 16 features, among all matrices'; past them all for none
  unsigned accumulate;
  float scale;
};

struct Matrices {
  static constexpr int kMost = 4;
  Matrix each[kMost];
};

// The matrix that a tile belongs to. Kept through a kernel's main loop it would take
// registers there: better looked up again, which the compiler must not see.
__device__ inline Matrix pick(const Matrices &matrices, int tile) {
  asm volatile("" : "+r"(tile));
  Matrix matrix = matrices.each[0];
#pragma unroll
  for (int i = 1; i < Matrices::kMost; i++) {
    if (tile >= matrices.each[i].first) matrix = matrices.each[i];
  }
  return matrix;
}

struct Step {
  // [unit][pair][8-row tile of all][lane]: B operands of the pair's two products.
  const uint4 *packed;
  const float *factors;  // [row] 2^e
  int tiles;             // of 16 features
  int units, slice_units, groups, runs;
  float *planes;       // [slice][row][feature of all], with more than one slice
  unsigned *arrivals;  // [block row][block], zero before and after a launch
};

// The end of a sum: its factors, and what was there.
__device__ inline void finish(const Step &o, const Matrix &matrix, int row, int feature,
                              float sum) {
  const float value = __fmul_rn(__fmul_rn(sum, o.factors[row]), matrix.scale);
  float *at = matrix.out + static_cast<int64_t>(row) * matrix.n + feature;
  *at = matrix.accumulate ? __fadd_rn(*at, value) : value;
}

// Has the bricks that follow a warp's first ones brought to the second-level cache, while
// there is nothing to do but wait for the predecessor.
template <int kBytes, int kTiles>
__device__ inline void ask_for(const uint8_t *const (&bricks)[kTiles], int units, int lane) {
#if __CUDA_ARCH__ >= 900
  constexpr int kAhead = 4;
  const uint32_t bytes = (min(units, kAhead + 1) - 1) * kBytes;
  if (lane < kTiles && units > 1) {
    const uint8_t *from = bricks[0];
#pragma unroll
    for (int i = 1; i < kTiles; i++) from = lane == i ? bricks[i] : from;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from + kBytes), "r"(bytes)
                 : "memory");
  }
#endif
}

constexpr int kStepThreads = 640;  // at most

constexpr int kMostSlices = 8;

// A block, one to a multiprocessor, has a range of the tiles, one slice of their inputs, and
// 8 * kColumns rows. It goes through its tiles `groups * kTiles` at a time. Warp
// `groups * r + i` has the i-th kTiles of them in run r, the sums of all rows in registers.
// Bricks come straight to registers, each part as soon as the same part of the brick before
// is used up; the first ones are asked for before the kernel waits for its predecessor, which
// never writes weights. Activations go through two stages of shared memory. With more than
// one slice the block that comes last of those with a range of tiles adds up what all left.
// Grid (ranges, slices, rows), 32 * groups * runs threads; shared memory as in plan.rs of
// the driver; bound by the bytes of the weight.
template <class Type, int kColumns>
__device__ inline void step(Site site, const int *control, unsigned set, int inputs, int outputs,
                            const Step &o, const Matrices &matrices) {
  extern __shared__ uint4 shared[];
  using Read = brick::Streamed;
  constexpr int kTiles = Type::kTiles;
  constexpr int kWords = Type::kPairs * kColumns * 32;  // of activations, in a unit
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int group = warp % o.groups, run = warp / o.groups;

  auto border = [&](int block) {
    return static_cast<int>(static_cast<int64_t>(block) * o.tiles / gridDim.x);
  };
  const int first_tile = border(blockIdx.x), end_tile = border(blockIdx.x + 1);
  const int at_once = o.groups * kTiles;
  const int first = blockIdx.y * o.slice_units, last = min(o.units, first + o.slice_units);
  const int run_units = (last - first + o.runs - 1) / o.runs;
  const int begin = first + run * run_units, own_units = min(last - begin, run_units);

  const uint8_t *bricks[kTiles];
  // Where the warp's tiles of the pass that begins with `tile` have their first bricks; a
  // tile past the end is the last.
  auto go_to = [&](int tile) {
#pragma unroll
    for (int i = 0; i < kTiles; i++) {
      const int mine = min(tile + group * kTiles + i, end_tile - 1);
      const Matrix matrix = pick(matrices, mine);
      const int64_t before = static_cast<int64_t>(mine - matrix.first) * o.units + begin;
      bricks[i] = matrix.weight + before * Type::kBytes;
    }
  };
  typename Type::Head heads[kTiles];
  typename Type::Part parts[kTiles][Type::kParts];
  go_to(first_tile);
  if (own_units > 0) {
#pragma unroll
    for (int i = 0; i < kTiles; i++) {
      heads[i] = Type::template head<Read>(bricks[i], lane);
#pragma unroll
      for (int v = 0; v < Type::kParts; v++) {
        parts[i][v] = Type::template part<Read>(bricks[i], lane, v);
      }
    }
  }

  ask_for<Type::kBytes>(bricks, own_units, lane);
  after_previous();
  // Activations of the i-th unit of each run, by the run's warps.
  const int all = gridDim.z * kColumns;  // 8-row tiles
  const uint4 *const column = o.packed + blockIdx.z * kColumns * 32;
  auto load = [&](int stage, int i) {
    const int64_t unit = min(begin + i, last - 1);
    const uint4 *from = column + unit * Type::kPairs * all * 32;
    uint4 *to = shared + (stage * o.runs + run) * kWords;
    if (gridDim.z == 1) {
      for (int at = group * 32 + lane; at < kWords; at += o.groups * 32) copy16(to + at, from + at);
    } else {
      for (int at = group * 32 + lane; at < kWords; at += o.groups * 32) {
        const int pair = at / (kColumns * 32), rest = at % (kColumns * 32);
        copy16(to + at, from + pair * all * 32 + rest);
      }
    }
    copies_commit();
  };
  float4 *const exchange = reinterpret_cast<float4 *>(shared + 2 * o.runs * kWords) +
                           group * kTiles * kColumns * 32 + lane;

  // On its way before the control block is read: memory of all columns is there.
  load(0, 0);
  const Rows rows = row_set(site, control, set, inputs, outputs);
  const int first_row = blockIdx.z * 8 * kColumns;
  if (first_row >= rows.count) return copies_wait<0>();
  // Wanted at the end; brought to the first-level cache.
  if (threadIdx.x < 8 * kColumns) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(o.factors + first_row + threadIdx.x));
  }
  int stage = 0;
  for (int tile = first_tile; tile < end_tile; tile += at_once) {
    const bool more_tiles = tile + at_once < end_tile;
    float sums[kTiles][kColumns][4] = {};
    for (int i = 0; i < run_units; i++) {
      copies_wait<0>();
      // The unit is there for all, and everyone is done with the stage that is filled next.
      __syncthreads();
      const bool more_units = i + 1 < run_units;
      if (more_units || more_tiles) load(stage ^ 1, more_units ? i + 1 : 0);
      if (i < own_units) {
        const bool more = i + 1 < own_units || more_tiles;
        Type type[kTiles];
#pragma unroll
        for (int j = 0; j < kTiles; j++) {
          type[j].begin(heads[j]);
          bricks[j] += Type::kBytes;
        }
        if (i + 1 == own_units && more) go_to(tile + at_once);
#pragma unroll
        for (int j = 0; j < kTiles; j++) {
          if (more) heads[j] = Type::template head<Read>(bricks[j], lane);
        }
        const uint4 *b_from = shared + (stage * o.runs + run) * kWords + lane;
#pragma unroll
        for (int v = 0; v < Type::kParts; v++) {
#pragma unroll
          for (int w = 0; w < Type::kPartPairs; w++) {
            const int pair = v * Type::kPartPairs + w;
            uint4 b[kColumns];
#pragma unroll
            for (int c = 0; c < kColumns; c++) b[c] = b_from[(pair * kColumns + c) * 32];
#pragma unroll
            for (int j = 0; j < kTiles; j++) {
              uint32_t a[2][4];
              type[j].pair(parts[j][v], v, w, a);
#pragma unroll
              for (int c = 0; c < kColumns; c++) {
                mma<Type::kBfloat>(sums[j][c], a[0], b[c].x, b[c].y);
                mma<Type::kBfloat>(sums[j][c], a[1], b[c].z, b[c].w);
              }
            }
          }
          if (more) {
#pragma unroll
            for (int j = 0; j < kTiles; j++) {
              parts[j][v] = Type::template part<Read>(bricks[j], lane, v);
            }
          }
        }
      }
      stage ^= 1;
    }

    // Runs, ascending, by way of shared memory: [tile][sum of the lane][lane].
    for (int r = 1; r < o.runs; r++) {
      __syncthreads();
      if (run == r) {
#pragma unroll
        for (int j = 0; j < kTiles; j++) {
#pragma unroll
          for (int c = 0; c < kColumns; c++) {
            const float(&s)[4] = sums[j][c];
            exchange[(j * kColumns + c) * 32] = make_float4(s[0], s[1], s[2], s[3]);
          }
        }
      }
      __syncthreads();
      if (run == 0) {
#pragma unroll
        for (int j = 0; j < kTiles; j++) {
#pragma unroll
          for (int c = 0; c < kColumns; c++) {
            const float4 x = exchange[(j * kColumns + c) * 32];
            float(&s)[4] = sums[j][c];
            s[0] = __fadd_rn(s[0], x.x), s[1] = __fadd_rn(s[1], x.y);
            s[2] = __fadd_rn(s[2], x.z), s[3] = __fadd_rn(s[3], x.w);
          }
        }
      }
    }
    if (run == 0) {
#pragma unroll
      for (int j = 0; j < kTiles; j++) {
        const int mine = tile + group * kTiles + j;
        if (mine >= end_tile) break;
        const Matrix matrix = pick(matrices, mine);
#pragma unroll
        for (int c = 0; c < kColumns; c++) {
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const int within = g + e / 2 * 8, feature = (mine - matrix.first) * 16 + within;
            const int row = first_row + 8 * c + 2 * t + e % 2;
            if (feature >= matrix.n || row >= rows.count) continue;
            if (gridDim.y == 1) {
              finish(o, matrix, row, feature, sums[j][c][e]);
            } else {
              const int64_t plane = static_cast<int64_t>(blockIdx.y) * rows.count + row;
              o.planes[plane * o.tiles * 16 + mine * 16 + within] = sums[j][c][e];
            }
          }
        }
      }
    }
  }
  if (gridDim.y == 1) return;

  // The last of the range's slices to come adds them up.
  __shared__ unsigned before;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    before = atomicInc(o.arrivals + blockIdx.z * gridDim.x + blockIdx.x, gridDim.y - 1);
  }
  __syncthreads();
  if (before != gridDim.y - 1) return;
  __threadfence();
  const int fours = (end_tile - first_tile) * 4, slices = gridDim.y;
  const int live = min(rows.count - first_row, 8 * kColumns);
  const int64_t plane = static_cast<int64_t>(rows.count) * o.tiles * 16;
  for (int i = threadIdx.x; i < live * fours; i += blockDim.x) {
    const int row = first_row + i / fours, at = first_tile * 16 + i % fours * 4;
    const float *from = o.planes + static_cast<int64_t>(row) * o.tiles * 16 + at;
    float4 each[kMostSlices];
#pragma unroll
    for (int s = 0; s < kMostSlices; s++) {
      if (s < slices) each[s] = __ldcg(reinterpret_cast<const float4 *>(from + s * plane));
    }
    float sum[4] = {each[0].x, each[0].y, each[0].z, each[0].w};
#pragma unroll
    for (int s = 1; s < kMostSlices; s++) {
      if (s >= slices) break;
      sum[0] = __fadd_rn(sum[0], each[s].x), sum[1] = __fadd_rn(sum[1], each[s].y);
      sum[2] = __fadd_rn(sum[2], each[s].z), sum[3] = __fadd_rn(sum[3], each[s].w);
    }
    const Matrix matrix = pick(matrices, at / 16);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int feature = at - matrix.first * 16 + e;
      if (feature < matrix.n) finish(o, matrix, row, feature, sum[e]);
    }
  }
}

}  // namespace ft::linear

// `linear_step_TYPE_COLUMNS`.
#define FT_BRICK_STEP(type, Type, columns)                                                       \
  extern "C" __global__ __launch_bounds__(ft::linear::kStepThreads, 1)                           \
      void linear_step_##type##_##columns(                                                       \
          ft::Site site, const int *control, unsigned set, int inputs, int outputs,              \
          const uint4 *packed, const float *factors, ft::linear::Matrices matrices, int tiles,   \
          int units, int slice_units, int groups, int runs, float *planes, unsigned *arrivals) { \
    ft::linear::step<Type, columns / 8>(site, control, set, inputs, outputs,                     \
                                        ft::linear::Step{packed, factors, tiles, units,          \
                                                         slice_units, groups, runs, planes,      \
                                                         arrivals},                              \
                                        matrices);                                               \
  }

// More rows than 32 take several blocks.
#define FT_BRICK_STEPS(type, Type) \
  FT_BRICK_STEP(type, Type, 8)     \
  FT_BRICK_STEP(type, Type, 16)    \
  FT_BRICK_STEP(type, Type, 24)    \
  FT_BRICK_STEP(type, Type, 32)
