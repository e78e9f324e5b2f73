// Products of a few or many rows of activations with a stored weight, on tensor cores.
//
// `out[m][n] = 2^e[m] * scale * sum_k w[n][k] x[m][k]`, x packed to f16 (a power of two of
// the row taken out) or bfloat16 by `linear_pack`, weights decoded to the same.
//
// Order of a sum, the same in both kernels and for every number of rows: inputs are cut
// into units (fragment.cuh), units into slices of `slice_units`, which depend on N, K and
// the type alone. Within a slice one chain of products of 16 inputs: units ascending, pairs
// ascending, first then second product. Slices are added up ascending.
#pragma once

#include "foretoken.cuh"
#include "fragment.cuh"

namespace ft::linear {

// What both kernels are given.
struct Operands {
  const uint4 *packed;   // [pair][8-row tile][lane]: B operands of the pair's two products
  const float *factors;  // [row] 2^e
  const uint8_t *weight;
  int64_t row_bytes;
  int n, k, slice_units;
  int tiles;  // 8-row tiles from one pair to the next
  float scale;
  unsigned accumulate;
  float *out;  // [rows][n]
};

__device__ inline void put(const Operands &o, int row, int feature, float sum) {
  const float value = __fmul_rn(__fmul_rn(sum, o.factors[row]), o.scale);
  float *out = o.out + static_cast<int64_t>(row) * o.n + feature;
  *out = o.accumulate ? __fadd_rn(*out, value) : value;
}

// Stored bytes of `kRows` weight rows on their way through shared memory, by one warp.
// Sixteen-byte pieces that hold the unit are copied as they lie, so a row begins in its
// place as far off alignment as in memory. What lies past the end of a row is zero.
template <class Type, int kRows>
struct Feed {
  static constexpr int kPieces = (Type::kUnitBytes + 16 - Type::kGrain + 15) / 16;
  static constexpr int kPitch = (kPieces | 1) * 16;  // odd: rows start in different banks
  static constexpr int kStage = kRows * kPitch;

  const Operands &o;
  uint8_t *ring;
  int first_row, lane;

  __device__ const uint8_t *row(int i) const {
    return o.weight + min(first_row + i, o.n - 1) * o.row_bytes;
  }

  __device__ void load(int stage, int unit) const {
#pragma unroll
    for (int i = 0; i < (kRows * kPieces + 31) / 32; i++) {
      const int piece = i * 32 + lane;
      if (kRows * kPieces % 32 != 0 && piece >= kRows * kPieces) break;
      const int r = piece / kPieces, part = piece % kPieces;
      const uint8_t *base = row(r);
      const uintptr_t start = reinterpret_cast<uintptr_t>(base) +
                              static_cast<int64_t>(unit) * Type::kUnitBytes;
      const uintptr_t at = (start & ~uintptr_t{15}) + part * 16;
      const int64_t left =
          static_cast<int64_t>(reinterpret_cast<uintptr_t>(base) + o.row_bytes - at);
      const int bytes = static_cast<int>(max(int64_t{0}, min(int64_t{16}, left)));
      const uint8_t *from = bytes ? reinterpret_cast<const uint8_t *>(at) : o.weight;
      copy16(ring + stage * kStage + r * kPitch + part * 16, from, bytes);
    }
  }

  // Where a row's bytes of a unit begin in a stage.
  __device__ const uint8_t *at(int stage, int unit, int i) const {
    const uint32_t start =
        static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row(i))) + unit * Type::kUnitBytes;
    return ring + stage * kStage + i * kPitch + (start & 15);
  }
};

// 1 to 8 * kTiles8 rows. A block of four warps has 64 * Type::kTiles features of one slice,
// each warp 16 * Type::kTiles of them with the sums of all rows in registers; weights come
// through a ring of the warp's own, activations through the caches. With more than one
// slice the sums go to `planes`, [slice][row][n], and the last block of a feature block to
// arrive (`arrived`, zero before and after) adds the planes up, in order of slices.
// Grid (feature blocks, slices), 128 threads; bound by the bytes of the weight.
template <class Type, int kTiles8>
__device__ inline void step(const Operands &o, Rows rows, float *planes, unsigned *arrived) {
  extern __shared__ uint4 shared[];
  constexpr int kTiles = Type::kTiles, kStages = kModern ? Type::kStages : 1;
  constexpr int kUnroll = kTiles8 < 4 ? Type::kPairs : 2;
  using Weights = Feed<Type, 16 * kTiles>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int row0 = (blockIdx.x * 4 + warp) * 16 * kTiles;
  const int units = (o.k + Type::kUnit - 1) / Type::kUnit;
  const int first = blockIdx.y * o.slice_units, last = min(units, first + o.slice_units);

  float sums[kTiles][kTiles8][4] = {};
  if (row0 < o.n) {
    uint8_t *ring = reinterpret_cast<uint8_t *>(shared) + warp * kStages * Weights::kStage;
    const Weights weights{o, ring, row0, lane};
#pragma unroll
    for (int i = 0; i < kStages - 1; i++) {
      if (first + i < last) weights.load(i, first + i);
      copies_commit();
    }
    int stage = 0, ahead = kStages - 1;
    for (int unit = first; unit < last; unit++) {
      // Everyone is done with the stage that is filled next.
      if constexpr (kStages == 1) __syncwarp();
      if constexpr (kStages > 1) {
        copies_wait<(kStages > 1 ? kStages - 2 : 0)>();
        __syncwarp();
      }
      if (unit + kStages - 1 < last) weights.load(ahead, unit + kStages - 1);
      copies_commit();
      if constexpr (kStages == 1) __syncwarp();

      Type type[kTiles];
#pragma unroll
      for (int i = 0; i < kTiles; i++) {
        type[i].begin(weights.at(stage, unit, 16 * i + g), weights.at(stage, unit, 16 * i + g + 8),
                      t);
      }
      const uint4 *packed =
          o.packed + static_cast<int64_t>(unit) * Type::kPairs * o.tiles * 32 + lane;
#pragma unroll kUnroll
      for (int w = 0; w < Type::kPairs; w++) {
        uint4 b[kTiles8];
#pragma unroll
        for (int j = 0; j < kTiles8; j++) {
          b[j] = make_uint4(0, 0, 0, 0);
          if (8 * j < rows.count) b[j] = __ldg(packed + (w * o.tiles + j) * 32);
        }
#pragma unroll
        for (int i = 0; i < kTiles; i++) {
          uint32_t a[2][4];
          type[i].pair(w, a);
#pragma unroll
          for (int j = 0; j < kTiles8; j++) {
            if (j > 0 && 8 * j >= rows.count) continue;
            mma<Type::kBfloat>(sums[i][j], a[0], b[j].x, b[j].y);
            mma<Type::kBfloat>(sums[i][j], a[1], b[j].z, b[j].w);
          }
        }
      }
      stage = stage + 1 == kStages ? 0 : stage + 1;
      ahead = ahead + 1 == kStages ? 0 : ahead + 1;
    }
  }

  const int64_t plane = static_cast<int64_t>(rows.count) * o.n;
  const bool whole = gridDim.y == 1;
  float *mine = planes + blockIdx.y * plane;
#pragma unroll
  for (int i = 0; i < kTiles; i++) {
#pragma unroll
    for (int j = 0; j < kTiles8; j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int feature = row0 + 16 * i + g + e / 2 * 8, row = 8 * j + 2 * t + e % 2;
        if (feature >= o.n || row >= rows.count) continue;
        if (whole) {
          put(o, row, feature, sums[i][j][e]);
        } else {
          mine[static_cast<int64_t>(row) * o.n + feature] = sums[i][j][e];
        }
      }
    }
  }
  if (whole) return;
  __threadfence();
  __syncthreads();
  unsigned *order = reinterpret_cast<unsigned *>(shared);
  if (threadIdx.x == 0) *order = atomicAdd(arrived + blockIdx.x, 1);
  __syncthreads();
  if (*order != gridDim.y - 1) return;
  __threadfence();
  if (threadIdx.x == 0) arrived[blockIdx.x] = 0;
  const int from = blockIdx.x * 64 * kTiles, features = min(64 * kTiles, o.n - from);
  for (int i = threadIdx.x; i < features * rows.count; i += 128) {
    const int row = i / features, feature = from + i % features;
    const float *at = planes + static_cast<int64_t>(row) * o.n + feature;
    float sum = __ldcg(at);
    for (unsigned s = 1; s < gridDim.y; s++) sum = __fadd_rn(sum, __ldcg(at + s * plane));
    put(o, row, feature, sum);
  }
}

}  // namespace ft::linear

// Parameters that both kernels have.
#define FT_LINEAR_OPERANDS                                                                      \
  ft::Site site, const int *control, unsigned set, int inputs, int outputs, const uint4 *packed, \
      const float *factors, const uint8_t *weight, long long row_bytes, int n, int k,            \
      int slice_units, int tiles, float scale, unsigned accumulate, float *out

#define FT_LINEAR_BEGIN                                                                     \
  const ft::Rows rows = ft::row_set(site, control, set, inputs, outputs);                   \
  if (rows.count == 0) return;                                                              \
  const ft::linear::Operands o{packed, factors,     weight, row_bytes, n, k, slice_units, tiles, \
                               scale,  accumulate, out}

// `linear_step_TYPE_COLUMNS`, `linear_prefill_TYPE`.
#define FT_LINEAR_STEP(type, columns, ...)                                                       \
  extern "C" __global__ __launch_bounds__(128) void linear_step_##type##_##columns(              \
      FT_LINEAR_OPERANDS, float *planes, unsigned *arrived) {                                    \
    FT_LINEAR_BEGIN;                                                                             \
    ft::linear::step<__VA_ARGS__, columns / 8>(o, rows, planes, arrived);                        \
  }

// Pairs are unrolled for few columns only: code would get long.
#define FT_LINEAR_STEPS(type, few, many) \
  FT_LINEAR_STEP(type, 8, few)           \
  FT_LINEAR_STEP(type, 16, few)          \
  FT_LINEAR_STEP(type, 24, few)          \
  FT_LINEAR_STEP(type, 32, many)         \
  FT_LINEAR_STEP(type, 48, many)         \
  FT_LINEAR_STEP(type, 64, many)

#define FT_LINEAR_PREFILL(type, ...)                                                          \
  extern "C" __global__ __launch_bounds__(256) void linear_prefill_##type(FT_LINEAR_OPERANDS, \
                                                                          int slots) {        \
    FT_LINEAR_BEGIN;                                                                          \
    ft::linear::prefill<__VA_ARGS__>(o, rows, slots);                                         \
  }
