// The products of linear.cuh for the rows of a prompt, on sm_90a: weights are decoded once,
// to memory, and then multiplied as dense matrices.
//
// An operand is an *image*: [line][row][128 bytes], a line being 64 inputs (two pairs) of
// every row, in the 128-byte swizzle that a stage of shared memory has to be in: piece `c`
// of 16 bytes lies at `c ^ (row % 8)`. So a stage is one bulk copy of each operand. Pieces
// 4 p to 4 p + 3 are pair p of the line: two for its first product, two for its second;
// of each, words 0 to 3 and 4 to 7 are what lanes `t` = 0 to 3 have in a[0] and a[2] (b0 and
// b1) of `ft::mma`. That makes a product of 16 inputs the same here and there, input by
// input.
//
// Order of a sum: that of linear_prefill.cuh, to the bit. Slices of `slice_lines`, in each
// one chain of products of 16 inputs, ascending; slices are added up ascending.
#pragma once

#include "linear.cuh"
#include "wgmma.cuh"

namespace ft::linear {

struct Dense {
  const uint8_t *rows;     // image of `padded` rows of activations
  const uint8_t *weights;  // image of `features` rows of weights
  int padded, features;
  const float *factors;  // [row] 2^e
  int n;                 // features that are stored, of `pitch` in a row of `out`
  int pitch, lines, slice_lines;
  float scale;
  unsigned accumulate;
  float *out;
};

// A block of three warpgroups has 128 rows and kFeatures features: one thread of the first
// keeps kStages lines under way, each of the others multiplies 64 rows. Sums of a slice and
// their total are in registers. A cluster of two blocks has the same features: each fetches
// half of the weights for both. Blocks stay, and take tiles in an order in which those at
// work at a time share rows and features through the second-level cache.
// What lies past the live rows, or past n, is multiplied and dropped.
// Grid: an even number of blocks of 384 threads; bound by tensor cores.
template <int kFeatures>
struct DenseShape {
  static constexpr int kRows = 128, kCluster = 2, kConsumers = 2;
  static constexpr int kBytesA = kRows * 128, kBytesB = kFeatures * 128;
  static constexpr int kStage = kBytesA + kBytesB;
  static constexpr int kStages = (226 << 10) / kStage;
  static constexpr int kShared = kStages * kStage + 1024;
  static constexpr int kTall = 4;  // row tiles of a cluster in a column of tiles
};

// Where the next tile of a cluster is.
struct Place {
  int row, feature;
};

template <int kFeatures>
struct Tiles {
  int rows, tall, wide;

  __device__ void set(int live_rows, int n) {
    rows = live_rows;
    tall = (rows + 255) / 256;
    wide = (n + kFeatures - 1) / kFeatures;
  }
  __device__ int count() const { return tall * wide; }
  __device__ Place at(int tile) const {
    constexpr int kTall = DenseShape<kFeatures>::kTall;
    const int column = tile / (kTall * wide), within = tile - column * kTall * wide;
    const int high = min(kTall, tall - column * kTall);
    return {(column * kTall + within % high) * 256, within / high * kFeatures};
  }
};

template <bool kBfloat, int kFeatures>
__device__ inline void dense(const Dense &o, int rows) {
  using Use = DenseShape<kFeatures>;
  using hopper::Product;
  constexpr int kStages = Use::kStages, kCluster = Use::kCluster;
  extern __shared__ uint8_t dense_shared[];
  __shared__ alignas(8) uint64_t barriers[2 * kStages];
  __shared__ Tiles<kFeatures> tiles;  // sums take all registers
  const uint32_t ring = (hopper::shared_address(dense_shared) + 1023) & ~1023u;
  const uint32_t filled = hopper::shared_address(barriers), emptied = filled + 8 * kStages;
  const int group = threadIdx.x / 128;
  const unsigned rank = hopper::cluster_rank();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) {
      hopper::barrier_make(filled + 8 * i, 1);
      hopper::barrier_make(emptied + 8 * i, 4 * Use::kConsumers * kCluster);
    }
    hopper::barriers_made();
    tiles.set(rows, o.n);
  }
  hopper::cluster_meet();

  const int first = blockIdx.x / kCluster, step = gridDim.x / kCluster;
  int stage = 0;
  unsigned parity = 0;
  auto next = [&] {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  };

  if (group == 0) {
    hopper::registers_give<40>();
    if (threadIdx.x == 0) {
      const int64_t line_a = static_cast<int64_t>(o.padded) * 128;
      const int64_t line_b = static_cast<int64_t>(o.features) * 128;
      constexpr int kHalf = Use::kBytesB / 2;
      for (int tile = first; tile < tiles.count(); tile += step) {
        const Place place = tiles.at(tile);
        const uint8_t *a = o.rows + static_cast<int64_t>(place.row + rank * Use::kRows) * 128;
        const uint8_t *b = o.weights + static_cast<int64_t>(place.feature) * 128 + rank * kHalf;
        for (int line = 0; line < o.lines; line++, a += line_a, b += line_b) {
          hopper::barrier_wait(emptied + 8 * stage, parity ^ 1);
          const uint32_t to = ring + stage * Use::kStage, at = filled + 8 * stage;
          hopper::barrier_expect(at, Use::kStage);
          hopper::bulk_load(to, a, Use::kBytesA, at);
          hopper::bulk_load_to(to + Use::kBytesA + rank * kHalf, b, kHalf, at, 3);
          next();
        }
      }
    }
  } else {
    hopper::registers_take<232>();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, g = lane / 4, t = lane % 4;
    auto release = [&](int which) {
      if (lane < kCluster) hopper::barrier_arrive(emptied + 8 * which, lane);
    };
    // Of the first stage; sixteen bytes are a unit of a descriptor's address.
    const uint64_t first_a = hopper::lines_at(ring + (group - 1) * 64 * 128);
    const uint64_t first_b = hopper::lines_at(ring + Use::kBytesA);
    const bool paired = o.pitch % 2 == 0 && reinterpret_cast<uintptr_t>(o.out) % 8 == 0;
    for (int tile = first; tile < tiles.count(); tile += step) {
      const Place place = tiles.at(tile);
      float sums[kFeatures / 2], totals[kFeatures / 2];
      // Minus zero and x is x, whatever its sign.
#pragma unroll
      for (int i = 0; i < kFeatures / 2; i++) totals[i] = -0.0f;
#pragma unroll 1
      for (int begin = 0; begin < o.lines; begin += o.slice_lines) {
        const int end = min(o.lines, begin + o.slice_lines);
        int before = stage;
#pragma unroll 1
        for (int line = begin; line < end; line++) {
          hopper::barrier_wait(filled + 8 * stage, parity);
          const uint64_t a = first_a + stage * (Use::kStage / 16);
          const uint64_t b = first_b + stage * (Use::kStage / 16);
          hopper::products_fence();
#pragma unroll
          for (int i = 0; i < 4; i++) {
            Product<kBfloat, kFeatures>::go(sums, a + 2 * i, b + 2 * i, i > 0 || line > begin);
          }
          hopper::products_commit();
          hopper::products_wait<1>();
          if (line > begin) release(before);
          before = stage;
          next();
        }
        hopper::products_wait<0>();
        release(before);
#pragma unroll
        for (int i = 0; i < kFeatures / 2; i++) {
          totals[i] = __fadd_rn(totals[i], sums[i]);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = place.row + rank * Use::kRows + (group - 1) * 64 + warp * 16 + g + 8 * half;
        if (row >= tiles.rows) continue;
        const float factor = o.factors[row];
        float *to = o.out + static_cast<int64_t>(row) * o.pitch;
        auto ended = [&](float sum) { return __fmul_rn(__fmul_rn(sum, factor), o.scale); };
#pragma unroll
        for (int j = 0; j < kFeatures / 8; j++) {
          const int feature = place.feature + 8 * j + 2 * t;
          float x = ended(totals[4 * j + 2 * half]), y = ended(totals[4 * j + 2 * half + 1]);
          if (paired && feature + 1 < o.n) {
            float2 *at = reinterpret_cast<float2 *>(to + feature);
            if (o.accumulate) {
              const float2 old = *at;
              x = __fadd_rn(old.x, x);
              y = __fadd_rn(old.y, y);
            }
            *at = make_float2(x, y);
          } else {
            if (feature < o.n) to[feature] = o.accumulate ? __fadd_rn(to[feature], x) : x;
            if (feature + 1 < o.n) {
              to[feature + 1] = o.accumulate ? __fadd_rn(to[feature + 1], y) : y;
            }
          }
        }
      }
    }
  }
  // Nobody leaves while the other may still write to its memory.
  hopper::cluster_meet();
}

}  // namespace ft::linear
