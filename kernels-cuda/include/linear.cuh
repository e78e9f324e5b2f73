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
  // [group of rows][pair][8-row tile][lane]: B operands of the pair's two products. A group
  // is all rows of a step, or 128.
  const uint4 *packed;
  const float *factors;  // [row] 2^e
  const uint8_t *weight;
  int64_t row_bytes;
  int n, k, slice_units;
  float scale;
  unsigned accumulate;
  float *out;  // [rows][n]
};

// The end of a sum: its factors, and what was there.
__device__ inline void put(const float *factors, float scale, unsigned accumulate, float *out,
                           int n, int row, int feature, float sum) {
  const float value = __fmul_rn(__fmul_rn(sum, factors[row]), scale);
  float *at = out + static_cast<int64_t>(row) * n + feature;
  *at = accumulate ? __fadd_rn(*at, value) : value;
}

__device__ inline void put(const Operands &o, int row, int feature, float sum) {
  put(o.factors, o.scale, o.accumulate, o.out, o.n, row, feature, sum);
}

// Stored bytes of `kRows` weight rows on their way through shared memory, by one warp.
// Sixteen-byte pieces that hold the unit are copied as they lie, so a row begins in its
// place as far off alignment as in memory. What lies past the end of a row is zero, and
// rows past the last are the last. With kKeep addresses are kept in registers.
template <class Type, int kRows, bool kKeep>
struct Feed {
  static constexpr bool kAligned = Type::kGrain == 16;
  static constexpr int kPieces = (Type::kUnitBytes + 16 - Type::kGrain + 15) / 16;
  static constexpr int kPitch = (kPieces | 1) * 16;  // odd: rows start in different banks
  static constexpr int kStage = kRows * kPitch;
  static constexpr int kTurns = (kRows * kPieces + 31) / 32;

  const Operands &o;
  uint8_t *ring;
  int first_row, lane, units;
  const uint8_t *from[kKeep ? kTurns : 1];

  __device__ Feed(const Operands &operands, uint8_t *stages, int row0, int lane_index)
      : o(operands), ring(stages), first_row(row0), lane(lane_index) {
    units = (o.k + Type::kUnit - 1) / Type::kUnit;
    if constexpr (kKeep) {
#pragma unroll
      for (int i = 0; i < kTurns; i++) from[i] = source(i);
    }
  }

  __device__ const uint8_t *row(int i) const {
    return o.weight + min(first_row + i, o.n - 1) * o.row_bytes;
  }

  // The lane's piece in turn `i`, of unit 0.
  __device__ const uint8_t *source(int i) const {
    const int piece = i * 32 + lane;
    return row(piece / kPieces) + piece % kPieces * 16;
  }

  // The address of a piece of a unit, from that of unit 0.
  __device__ static const uint8_t *ahead(const uint8_t *first, int unit) {
    const int64_t bytes = static_cast<int64_t>(unit) * Type::kUnitBytes;
    const uintptr_t at = (reinterpret_cast<uintptr_t>(first) + bytes) & ~uintptr_t{15};
    return reinterpret_cast<const uint8_t *>(at);
  }

  __device__ void load(int stage, int unit) const {
    uint8_t *to = ring + stage * kStage;
    if (!kAligned && unit + 1 == units) return load_end(to, unit);
#pragma unroll
    for (int i = 0; i < kTurns; i++) {
      const int piece = i * 32 + lane;
      if (kRows * kPieces % 32 != 0 && piece >= kRows * kPieces) break;
      const uint8_t *first;
      if constexpr (kKeep) {
        first = from[i];
      } else {
        first = source(i);
      }
      copy16(to + piece / kPieces * kPitch + piece % kPieces * 16, ahead(first, unit));
    }
  }

  // The last unit, whose pieces may reach past the end of the row.
  __device__ void load_end(uint8_t *to, int unit) const {
#pragma unroll 1
    for (int i = 0; i < kTurns; i++) {
      const int piece = i * 32 + lane;
      if (piece >= kRows * kPieces) break;
      uint8_t *place = to + piece / kPieces * kPitch + piece % kPieces * 16;
      const uint8_t *at = ahead(source(i), unit);
      const int64_t left = row(piece / kPieces) + o.row_bytes - at;
      if (left >= 16) {
        copy16(place, at);
      } else {
        copy_end(place, at, static_cast<int>(max(int64_t{0}, left)));
      }
    }
  }

  // The low bits of where a row begins.
  __device__ uint32_t start(int i) const {
    return kAligned ? 0 : static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row(i)));
  }

  // Where row `i`, which begins at `start`, has its bytes of a unit in a stage.
  __device__ const uint8_t *at(int stage, int unit, int i, uint32_t start) const {
    const uint32_t off = kAligned ? 0 : (start + unit * Type::kUnitBytes) & 15;
    return ring + stage * kStage + i * kPitch + off;
  }
};

// Pairs of inputs that the step kernel has under way.
template <class Type>
constexpr int kPairsAtOnce = 2;

// How the step kernel uses shared memory; plan.rs of the driver knows the same.
template <class Type>
struct Shape {
  static constexpr int kThree = 75 << 10;  // so that three blocks fit on sm_80 to sm_100
  static constexpr int kStage = 4 * Feed<Type, 16, false>::kStage;
  static constexpr int kStages = !kModern ? 1 : 3 * kStage + 16 <= kThree ? 3 : 2;
};

// 1 to 64 rows. A block of four warps has 64 features of one slice, each warp 16 of them with
// the sums of all rows in registers. Stages of shared memory hold the block's weights of a
// unit; activations come from memory, and tiles of rows without live ones are skipped. With
// more than one slice the sums go to `planes`, [slice][row][n], for `linear_sum` to add up in
// order of slices.
// Grid (feature blocks, slices), 128 threads; bound by the bytes of the weight.
template <class Type>
__device__ inline void step(const Operands &o, Rows rows, float *planes) {
  extern __shared__ uint4 shared[];
  constexpr int kColumns = 8, kStages = Shape<Type>::kStages;
  using Weights = Feed<Type, 16, true>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int row0 = (blockIdx.x * 4 + warp) * 16;
  const int units = (o.k + Type::kUnit - 1) / Type::kUnit;
  const int first = blockIdx.y * o.slice_units, last = min(units, first + o.slice_units);

  uint8_t *ring = reinterpret_cast<uint8_t *>(shared) + warp * kStages * Weights::kStage;
  const Weights weights(o, ring, row0, lane);
  const uint32_t starts[2] = {weights.start(g), weights.start(g + 8)};
  auto load = [&](int stage, int unit) {
    if (unit < last) weights.load(stage, unit);
    copies_commit();
  };

  float sums[kColumns][4] = {};
#pragma unroll
  for (int i = 0; i < kStages - 1; i++) load(i, first + i);
  int stage = 0, ahead = kStages - 1;
  for (int unit = first; unit < last; unit++) {
    if constexpr (kStages > 1) copies_wait<(kStages > 1 ? kStages - 2 : 0)>();
    // The unit is there for all, and everyone is done with the stage that is filled next.
    __syncthreads();
    load(ahead, unit + kStages - 1);
    if constexpr (kStages == 1) __syncthreads();

    Type type;
    type.begin(weights.at(stage, unit, g, starts[0]), weights.at(stage, unit, g + 8, starts[1]),
               t);
    const uint4 *b_from =
        o.packed + static_cast<int64_t>(unit) * Type::kPairs * kColumns * 32 + lane;
    constexpr int kPairs = kPairsAtOnce<Type>;
#pragma unroll kPairs
    for (int w = 0; w < Type::kPairs; w++) {
      uint4 b[kColumns];
#pragma unroll
      for (int j = 0; j < kColumns; j++) {
        if (j == 0 || 8 * j < rows.count) b[j] = b_from[(w * kColumns + j) * 32];
      }
      uint32_t a[2][4];
      type.pair(w, a);
#pragma unroll
      for (int j = 0; j < kColumns; j++) {
        if (j > 0 && 8 * j >= rows.count) continue;
        mma<Type::kBfloat>(sums[j], a[0], b[j].x, b[j].y);
        mma<Type::kBfloat>(sums[j], a[1], b[j].z, b[j].w);
      }
    }
    stage = stage + 1 == kStages ? 0 : stage + 1;
    ahead = ahead + 1 == kStages ? 0 : ahead + 1;
  }

  const bool whole = gridDim.y == 1;
  float *mine = planes + static_cast<int64_t>(blockIdx.y) * rows.count * o.n;
#pragma unroll
  for (int j = 0; j < kColumns; j++) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int feature = row0 + g + e / 2 * 8, row = 8 * j + 2 * t + e % 2;
      if (feature >= o.n || row >= rows.count) continue;
      if (whole) {
        put(o, row, feature, sums[j][e]);
      } else {
        mine[static_cast<int64_t>(row) * o.n + feature] = sums[j][e];
      }
    }
  }
}

}  // namespace ft::linear

// Parameters that both kernels have.
#define FT_LINEAR_OPERANDS                                                                      \
  ft::Site site, const int *control, unsigned set, int inputs, int outputs, const uint4 *packed, \
      const float *factors, const uint8_t *weight, long long row_bytes, int n, int k,            \
      int slice_units, float scale, unsigned accumulate, float *out

#define FT_LINEAR_BEGIN                                                                     \
  const ft::Rows rows = ft::row_set(site, control, set, inputs, outputs);                   \
  if (rows.count == 0) return;                                                              \
  const ft::linear::Operands o{packed, factors,     weight, row_bytes,  n,  \
                               k,      slice_units, scale,  accumulate, out}

// `linear_step_TYPE_COLUMNS`, `linear_prefill_TYPE`.
#define FT_LINEAR_STEP(type, columns, ...)                                                       \
  extern "C" __global__ __launch_bounds__(128) void linear_step_##type##_##columns(              \
      FT_LINEAR_OPERANDS, float *planes) {                                                       \
    FT_LINEAR_BEGIN;                                                                             \
    ft::linear::step<__VA_ARGS__>(o, rows, planes);                                              \
  }

#define FT_LINEAR_PREFILL(type, ...)                                                          \
  extern "C" __global__ __launch_bounds__(256) void linear_prefill_##type(FT_LINEAR_OPERANDS, \
                                                                          int slots) {        \
    FT_LINEAR_BEGIN;                                                                          \
    ft::linear::prefill<__VA_ARGS__>(o, rows, slots);                                         \
  }
