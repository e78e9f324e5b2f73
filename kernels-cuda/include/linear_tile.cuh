// Sums of a step over weights in bricks (linear_bricks.cuh): what a warp has of them, and how
// they end.
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
  int helpers, tail;       // warps that take the last units of each tile, and how many units
  float4 *planes;        // [slice][tile][block row][column][lane], with more than one slice
  unsigned *arrivals;    // [tile][block row], zero before and after a launch
};

constexpr int kStepWarps = 20;  // that multiply, at most
constexpr int kMostSlices = 8;

// The end of a sum: its factors, and what was there.
__device__ inline void finish(const Step &o, const Matrix &matrix, int row, int feature,
                              float sum) {
  const float value = __fmul_rn(__fmul_rn(sum, o.factors[row]), matrix.scale);
  float *at = matrix.out + static_cast<int64_t>(row) * matrix.n + feature;
  *at = matrix.accumulate ? __fadd_rn(*at, value) : value;
}

// What a warp has to do.
struct Share {
  int first_tile, end_tile;  // of the block
  int group, run;
  int begin, own_units, run_units;  // of inputs: the warp's first, its own, those of a run
  int last;                         // end of the slice; of this the helpers' units are the end

  __device__ Share(const Step &o, int warp) {
    auto border = [&](int block) {
      return static_cast<int>(static_cast<int64_t>(block) * o.tiles / gridDim.x);
    };
    first_tile = border(blockIdx.x), end_tile = border(blockIdx.x + 1);
    group = warp % o.groups, run = warp / o.groups;
    const int first = blockIdx.y * o.slice_units;
    last = min(o.units, first + o.slice_units);
    run_units = (last - o.tail - first + o.runs - 1) / o.runs;
    begin = first + run * run_units;
    own_units = min(last - o.tail - begin, run_units);
  }
};

// The sums of a warp's tile, for others: [column][lane] from `to` on.
template <int kColumns>
__device__ inline void leave(float4 *to, const float (&sums)[kColumns][4]) {
#pragma unroll
  for (int c = 0; c < kColumns; c++) {
    const float(&s)[4] = sums[c];
    to[c * 32] = make_float4(s[0], s[1], s[2], s[3]);
  }
}

// Adds what others left to the sums of a warp's tile.
template <int kColumns>
__device__ inline void add_left(const float4 *from, float (&sums)[kColumns][4]) {
#pragma unroll
  for (int c = 0; c < kColumns; c++) {
    const float4 x = from[c * 32];
    float(&s)[4] = sums[c];
    s[0] = __fadd_rn(s[0], x.x), s[1] = __fadd_rn(s[1], x.y);
    s[2] = __fadd_rn(s[2], x.z), s[3] = __fadd_rn(s[3], x.w);
  }
}

// Adds the sums of all runs to those of run 0, ascending. `exchange` is [run - 1][group]
// [column][lane]; `again` says that it has been used before. With helpers, their sums of a
// group's tile are those of run 1.
template <int kColumns>
__device__ inline void add_runs(const Step &o, const Share &share, float4 *exchange, bool again,
                                float (&sums)[kColumns][4]) {
  const int apart = o.groups * kColumns * 32;
  float4 *const mine = exchange + share.group * kColumns * 32 + threadIdx.x % 32;
  if (again) __syncthreads();
  if (share.run > 0) leave(mine + (share.run - 1) * apart, sums);
  __syncthreads();
  if (share.run > 0) return;
  const int others = o.helpers > 0 ? 1 : o.runs - 1;
#pragma unroll 2
  for (int r = 0; r < others; r++) add_left(mine + r * apart, sums);
}

// Counts a warp in, and says how many came before; the last sets back to zero. What the
// warp's threads have written is there for whoever comes later.
__device__ inline unsigned arrive(unsigned *counter, unsigned last) {
  __syncwarp();
  unsigned before = 0;
  if (threadIdx.x % 32 == 0) {
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(last)
                 : "memory");
  }
  before = __shfl_sync(0xFFFFFFFFu, before, 0);
  __syncwarp();
  return before;
}

// Ends the sums of a warp's tile. With several slices the warp that comes last of those that
// have the tile adds up what all left.
template <int kColumns>
__device__ inline void end_tile(const Step &o, const Matrices &matrices, Rows rows, int tile,
                                float (&sums)[kColumns][4]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int first_row = blockIdx.z * 8 * kColumns;
  const int slices = gridDim.y;
  // Slices whose sums are under way together: registers for more would be missing elsewhere.
  constexpr int kAtOnce = kColumns > 3 ? 1 : kColumns > 2 ? 2 : 4;
  if (slices > 1) {
    const int place = tile * gridDim.z + blockIdx.z;
    const int64_t plane = static_cast<int64_t>(o.tiles) * gridDim.z * kColumns * 32;
    float4 *const at = o.planes + static_cast<int64_t>(place) * kColumns * 32 + lane;
#pragma unroll
    for (int c = 0; c < kColumns; c++) {
      if (first_row + 8 * c + 2 * t >= rows.count) continue;
      const float(&s)[4] = sums[c];
      __stcg(at + blockIdx.y * plane + c * 32, make_float4(s[0], s[1], s[2], s[3]));
    }
    if (arrive(o.arrivals + place, slices - 1) + 1 != slices) return;
#pragma unroll
    for (int c = 0; c < kColumns; c++) {
      if (first_row + 8 * c + 2 * t >= rows.count) continue;
      float4 sum;
#pragma unroll 1
      for (int first = 0; first < slices; first += kAtOnce) {
        float4 each[kAtOnce];
#pragma unroll
        for (int s = 0; s < kAtOnce; s++) {
          if (first + s < slices) each[s] = __ldcg(at + (first + s) * plane + c * 32);
        }
#pragma unroll
        for (int s = 0; s < kAtOnce; s++) {
          if (first + s >= slices) break;
          if (first + s == 0) {
            sum = each[0];
            continue;
          }
          sum.x = __fadd_rn(sum.x, each[s].x), sum.y = __fadd_rn(sum.y, each[s].y);
          sum.z = __fadd_rn(sum.z, each[s].z), sum.w = __fadd_rn(sum.w, each[s].w);
        }
      }
      sums[c][0] = sum.x, sums[c][1] = sum.y, sums[c][2] = sum.z, sums[c][3] = sum.w;
    }
  }
  const Matrix matrix = pick(matrices, tile);
#pragma unroll
  for (int c = 0; c < kColumns; c++) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int feature = (tile - matrix.first) * 16 + g + e / 2 * 8;
      const int row = first_row + 8 * c + 2 * t + e % 2;
      if (feature < matrix.n && row < rows.count) finish(o, matrix, row, feature, sums[c][e]);
    }
  }
}

}  // namespace ft::linear
