// The same products for more rows than a step has: weights are decoded once for 128 rows.
#pragma once

#include "linear.cuh"

namespace ft::linear {

// Pairs that are decoded at once, and copies of the decoded tile: as shared memory allows.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 800 || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200)
constexpr int kChunkPairs = 2;
#else
constexpr int kChunkPairs = 1;
#endif
constexpr int kDecoded = kModern ? 2 : 1;

// A block of sixteen warps has 128 features and 128 rows. Two warps decode 16 features of a
// chunk (`kChunkPairs` pairs, taken in turn) to shared memory, while the chunk before is
// multiplied, each warp 32 features by 32 rows. Stored bytes come through one or two stages
// (`slots`) of each two warps. Sums of a slice and their total are in registers.
// Grid (row blocks, feature blocks), 512 threads; bound by shared memory, then tensor cores.
template <class Type>
__device__ inline void prefill(const Operands &o, Rows rows, int slots) {
  extern __shared__ uint4 shared[];
  using Weights = Feed<Type, 16, false, 64>;
  constexpr int kTileA = kChunkPairs * 2 * 32, kChunkA = 8 * kTileA;
  constexpr int kChunkB = kChunkPairs * 16 * 32;
  constexpr int kChunks = Type::kPairs / kChunkPairs;  // of a unit
  if (static_cast<int>(blockIdx.x) * 128 >= rows.count) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int feature0 = blockIdx.y * 128, tile0 = blockIdx.x * 16;
  const int tile = warp / 2, high = warp % 4, wide = warp / 4;
  // Meets the other warp of the tile.
  auto meet = [&] { asm volatile("bar.sync %0, 64;" ::"r"(tile + 1) : "memory"); };
  uint4 *decoded = shared, *columns = shared + kDecoded * kChunkA;
  uint8_t *ring = reinterpret_cast<uint8_t *>(columns + 2 * kChunkB) +
                  tile * slots * Weights::kStage;
  const Weights weights(o, ring, feature0 + 16 * tile, threadIdx.x % 64);
  const uint32_t starts[2] = {weights.start(g), weights.start(g + 8)};
  const int units = weights.units, chunks = units * kChunks;

  Type type;
  auto load_columns = [&](int chunk) {
    const uint4 *from =
        o.packed + (static_cast<int64_t>(chunk) * kChunkPairs * o.tiles + tile0) * 32;
    uint4 *to = columns + chunk % 2 * kChunkB;
#pragma unroll
    for (int i = 0; i < kChunkB / 512; i++) {
      const int at = i * 512 + threadIdx.x, pair = at / 512, rest = at % 512;
      const uint4 *source = from + pair * o.tiles * 32 + rest;
      copy16(to + at, reinterpret_cast<const uint8_t *>(source), 16);
    }
  };
  auto decode = [&](int chunk) {
    const int unit = chunk / kChunks, slot = slots == 2 ? unit % 2 : 0;
    if (chunk % kChunks == 0) {
      // All groups but the columns' own, which is the newest.
      copies_wait<1>();
      meet();
      type.begin(weights.at(slot, unit, g, starts[0]), weights.at(slot, unit, g + 8, starts[1]),
                 t);
    }
    uint4 *to = decoded + chunk % kDecoded * kChunkA + tile * kTileA + lane;
#pragma unroll
    for (int p = warp % 2; p < kChunkPairs; p += 2) {
      uint32_t a[2][4];
      type.pair(chunk % kChunks * kChunkPairs + p, a);
#pragma unroll
      for (int s = 0; s < 2; s++) {
        to[(p * 2 + s) * 32] = make_uint4(a[s][0], a[s][1], a[s][2], a[s][3]);
      }
    }
  };
  // The stored bytes of a unit are fetched a unit ahead, or with one slot, as soon as the
  // unit before is decoded. Returns whether any were.
  auto fetch = [&](int chunk) {
    const int unit = (slots == 2 ? chunk : chunk + 1) / kChunks + 1;
    const bool due = slots == 2 ? chunk % kChunks == 0 : (chunk + 1) % kChunks == kChunks - 1;
    if (!due || unit >= units) return false;
    meet();
    weights.load(slots == 2 ? unit % 2 : 0, unit);
    copies_commit();
    return true;
  };

  float sums[2][4][4] = {}, totals[2][4][4] = {};
  auto multiply = [&](int chunk) {
    const uint4 *a_from = decoded + chunk % kDecoded * kChunkA + high * 2 * kTileA + lane;
    const uint4 *b_from = columns + chunk % 2 * kChunkB + wide * 4 * 32 + lane;
#pragma unroll
    for (int p = 0; p < kChunkPairs; p++) {
      uint4 b[4];
#pragma unroll
      for (int j = 0; j < 4; j++) b[j] = b_from[(p * 16 + j) * 32];
#pragma unroll
      for (int s = 0; s < 2; s++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const uint4 x = a_from[i * kTileA + (p * 2 + s) * 32];
          const uint32_t a[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
          for (int j = 0; j < 4; j++) {
            mma<Type::kBfloat>(sums[i][j], a, s ? b[j].z : b[j].x, s ? b[j].w : b[j].y);
          }
        }
      }
    }
    const int done = (chunk + 1) / kChunks;
    if ((chunk + 1) % kChunks != 0 || (done % o.slice_units != 0 && done != units)) return;
    const bool first = done <= o.slice_units;
#pragma unroll
    for (int i = 0; i < 2; i++) {
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

  weights.load(0, 0);
  copies_commit();
  load_columns(0);
  copies_commit();
  decode(0);
  copies_wait<0>();
  __syncthreads();
  for (int chunk = 0; chunk < chunks; chunk++) {
    const bool more = chunk + 1 < chunks;
    if (more) load_columns(chunk + 1);
    copies_commit();
    if constexpr (kDecoded == 1) {
      multiply(chunk);
      __syncthreads();
    }
    if (more) decode(chunk + 1);
    const bool fetched = more && fetch(chunk);
    if constexpr (kDecoded == 2) multiply(chunk);
    if (fetched) {
      copies_wait<1>();
    } else {
      copies_wait<0>();
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int feature = feature0 + high * 32 + 16 * i + g + e / 2 * 8;
        const int row = (tile0 + wide * 4 + j) * 8 + 2 * t + e % 2;
        if (feature < o.n && row < rows.count) put(o, row, feature, totals[i][j][e]);
      }
    }
  }
}

}  // namespace ft::linear
