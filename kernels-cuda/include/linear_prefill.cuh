// The same products for more rows than a step has: weights are decoded once for 128 rows.
#pragma once

#include "brick.cuh"
#include "linear.cuh"

namespace ft::linear {

// A warp's 16 features as they are stored, rows after rows, through shared memory.
template <class Type>
struct Rows16 {
  static constexpr int kUnit = Type::kUnit, kPairs = Type::kPairs;
  static constexpr bool kBfloat = Type::kBfloat;
  using Weights = Feed<Type, 16, false>;
  static constexpr int kStage = Weights::kStage;
  Weights weights;
  uint32_t starts[2];
  int g, t;
  Type type;

  __device__ Rows16(const Operands &o, uint8_t *ring, int row0, int lane)
      : weights(o, ring, row0, lane), g(lane / 4), t(lane % 4) {
    starts[0] = weights.start(g);
    starts[1] = weights.start(g + 8);
  }
  __device__ void load(int slot, int unit) const { weights.load(slot, unit); }
  __device__ void begin(int slot, int unit) {
    type.begin(weights.at(slot, unit, g, starts[0]), weights.at(slot, unit, g + 8, starts[1]), t);
  }
  __device__ void pair(int p, uint32_t (&a)[2][4]) const { type.pair(p, a); }
};

// The same in bricks.
template <class Type>
struct Bricks16 {
  static constexpr int kUnit = Type::kUnit, kPairs = Type::kPairs, kStage = Type::kBytes;
  static constexpr bool kBfloat = Type::kBfloat;
  const uint8_t *bricks;
  uint8_t *ring;
  const uint8_t *stage;
  int lane;
  Type type;

  __device__ Bricks16(const Operands &o, uint8_t *ring_start, int row0, int lane_index)
      : ring(ring_start), lane(lane_index) {
    const int units = (o.k + kUnit - 1) / kUnit, tile = min(row0, o.n - 1) / 16;
    bricks = o.weight + static_cast<int64_t>(tile) * units * kStage;
  }
  __device__ void load(int slot, int unit) const {
    const uint8_t *from = bricks + static_cast<int64_t>(unit) * kStage;
    for (int i = lane * 16; i < kStage; i += 512) copy16(ring + slot * kStage + i, from + i);
  }
  __device__ void begin(int slot, int) {
    stage = ring + slot * kStage;
    type.begin(Type::template head<brick::Shared>(stage, lane));
  }
  __device__ void pair(int p, uint32_t (&a)[2][4]) const {
    const int v = p / Type::kPartPairs;
    type.pair(Type::template part<brick::Shared>(stage, lane, v), v, p % Type::kPartPairs, a);
  }
};

// Pairs of a chunk, decoded chunks, and chunks of activations: as shared memory allows.
// plan.rs of the driver knows the same.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 800 || \
    (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200)
constexpr int kChunkPairs = 2;
#else
constexpr int kChunkPairs = 1;
#endif
constexpr int kDecoded = kModern ? 2 : 1;
constexpr int kColumnStages = kModern ? 4 : 2;

// A block of eight warps has 128 features and 128 rows. A chunk of weights is decoded to
// shared memory, 16 features by each warp, while the chunk before is multiplied, each warp
// 64 features by 32 rows. Stored bytes come through `slots` stages of a unit, of each warp.
// Sums of a slice and their total are in registers.
// Grid (row blocks, feature blocks), 256 threads; bound by instructions, then by shared
// memory and tensor cores.
template <class Source>
__device__ inline void prefill(const Operands &o, Rows rows, int slots) {
  extern __shared__ uint4 shared[];
  constexpr int kThreads = 256, kTall = 4;
  constexpr int kTileA = kChunkPairs * 2 * 32, kChunkA = 8 * kTileA;
  constexpr int kChunkB = kChunkPairs * 16 * 32;
  constexpr int kChunks = Source::kPairs / kChunkPairs;  // of a unit
  constexpr int kAhead = kColumnStages - 1;
  if (static_cast<int>(blockIdx.x) * 128 >= rows.count) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int feature0 = blockIdx.y * 128, row_tile0 = blockIdx.x * 16;
  const int high = warp % 2, wide = warp / 2;
  uint4 *decoded = shared, *columns = shared + kDecoded * kChunkA;
  uint8_t *ring = reinterpret_cast<uint8_t *>(columns + kColumnStages * kChunkB) +
                  warp * slots * Source::kStage;
  Source weights(o, ring, feature0 + 16 * warp, lane);
  const int units = (o.k + Source::kUnit - 1) / Source::kUnit, chunks = units * kChunks;
  // Stored bytes are there, by the waits for activations alone, when they are decoded.
  const bool early = (slots - 1) * kChunks > kAhead;

  const uint4 *packed =
      o.packed + static_cast<int64_t>(blockIdx.x) * units * Source::kPairs * 512 + threadIdx.x;
  auto load_columns = [&](int chunk) {
    if (chunk >= chunks) return;
    const uint4 *from = packed + static_cast<int64_t>(chunk) * kChunkB;
    uint4 *to = columns + chunk % kColumnStages * kChunkB + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kChunkB / kThreads; i++) {
      copy16(to + i * kThreads, from + i * kThreads);
    }
  };
  // A unit's stored bytes are fetched slots - 1 units ahead, or with one slot, as soon as
  // the unit before is decoded.
  auto fetch = [&](int chunk) {
    const bool due = slots > 1 ? chunk % kChunks == 0 : (chunk + 1) % kChunks == kChunks - 1;
    const int unit = slots > 1 ? chunk / kChunks + slots - 1 : (chunk + 1) / kChunks + 1;
    if (!due || unit >= units) return;
    __syncwarp();
    weights.load(unit % slots, unit);
  };
  auto decode = [&](int chunk) {
    if (chunk % kChunks == 0) {
      const int unit = chunk / kChunks, slot = unit % slots;
      if (!early) {
        copies_wait<0>();
        __syncwarp();
      }
      weights.begin(slot, unit);
    }
    uint4 *to = decoded + chunk % kDecoded * kChunkA + warp * kTileA + lane;
#pragma unroll
    for (int p = 0; p < kChunkPairs; p++) {
      uint32_t a[2][4];
      weights.pair(chunk % kChunks * kChunkPairs + p, a);
#pragma unroll
      for (int s = 0; s < 2; s++) {
        to[(p * 2 + s) * 32] = make_uint4(a[s][0], a[s][1], a[s][2], a[s][3]);
      }
    }
  };

  float sums[kTall][4][4] = {}, totals[kTall][4][4] = {};
  auto multiply = [&](int chunk) {
    const uint4 *a_from = decoded + chunk % kDecoded * kChunkA + high * kTall * kTileA + lane;
    const uint4 *b_from = columns + chunk % kColumnStages * kChunkB + wide * 4 * 32 + lane;
#pragma unroll
    for (int p = 0; p < kChunkPairs; p++) {
      uint4 b[4];
#pragma unroll
      for (int j = 0; j < 4; j++) b[j] = b_from[(p * 16 + j) * 32];
#pragma unroll
      for (int s = 0; s < 2; s++) {
#pragma unroll
        for (int i = 0; i < kTall; i++) {
          const uint4 x = a_from[i * kTileA + (p * 2 + s) * 32];
          const uint32_t a[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
          for (int j = 0; j < 4; j++) {
            mma<Source::kBfloat>(sums[i][j], a, s ? b[j].z : b[j].x, s ? b[j].w : b[j].y);
          }
        }
      }
    }
  };
  // At the end of a slice.
  auto add = [&](bool first) {
#pragma unroll
    for (int i = 0; i < kTall; i++) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          totals[i][j][e] = first ? sums[i][j][e] : __fadd_rn(totals[i][j][e], sums[i][j][e]);
          sums[i][j][e] = 0.0f;
        }
      }
    }
  };

  for (int unit = 0; unit < max(1, slots - 1); unit++) {
    if (unit < units) weights.load(unit, unit);
  }
#pragma unroll
  for (int i = 0; i < kAhead; i++) {
    load_columns(i);
    copies_commit();
  }
  copies_wait<kAhead - 1>();
  __syncthreads();
  decode(0);
  __syncthreads();
  int chunk = 0;
  for (int unit = 0; unit < units; unit += o.slice_units) {
    const int end = min(units, unit + o.slice_units) * kChunks;
    for (; chunk < end; chunk++) {
      load_columns(chunk + kAhead);
      if constexpr (kDecoded == 1) {
        multiply(chunk);
        __syncthreads();
      }
      if (chunk + 1 < chunks) {
        decode(chunk + 1);
        fetch(chunk);
      }
      copies_commit();
      if constexpr (kDecoded == 2) multiply(chunk);
      copies_wait<kAhead - 1>();
      __syncthreads();
    }
    add(unit == 0);
  }

#pragma unroll
  for (int i = 0; i < kTall; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int feature = feature0 + (high * kTall + i) * 16 + g + e / 2 * 8;
        const int row = (row_tile0 + wide * 4 + j) * 8 + 2 * t + e % 2;
        if (feature < o.n && row < rows.count) put(o, row, feature, totals[i][j][e]);
      }
    }
  }
}

}  // namespace ft::linear
