// Rows of activations as operands of tensor-core products read them.
//
// A row is packed into B operands: [group][pair][8-row tile][lane][16 bytes], lane `4 g + t`
// having row g of the tile, `tiles` tiles to a group; which inputs a lane has of a pair is in
// brick.cuh. For f16 the largest magnitude of a row is scaled into 2^14 .. 2^15 by a power of
// two (down from 2^-100 at least), whose inverse is its factor; smaller values keep eleven
// bits down to 2^-28 of the largest. NaN and infinity stay what they are. Inputs past the end
// and rows that fill up a group are zero. A row alone decides its bits.
#pragma once

#include "activations.cuh"
#include "wide.cuh"

namespace ft {

using linear::kBfloatScalars, linear::kBlocks, linear::kPackThreads;

struct PackTo {
  unsigned order;
  int pairs, tiles;
  uint4 *packed;
  float *factors;  // [row]

  // Rows there are to write, of which `rows` are live.
  __device__ int padded(int rows) const {
    const int whole = 8 * tiles;
    return (rows + whole - 1) / whole * whole;
  }
};

// The largest of what the blocks of a cluster of kSpread have.
template <int kSpread>
__device__ inline float cluster_largest(float x) {
#if __CUDA_ARCH__ >= 900
  if constexpr (kSpread > 1) {
    __shared__ float mine;
    if (threadIdx.x == 0) mine = x;
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;"
                 ::: "memory");
    const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(&mine));
#pragma unroll
    for (int rank = 0; rank < kSpread; rank++) {
      float other;
      asm volatile("{.reg .u32 there;\n\tmapa.shared::cluster.u32 there, %1, %2;\n\t"
                   "ld.shared::cluster.f32 %0, [there];}"
                   : "=f"(other)
                   : "r"(at), "r"(rank)
                   : "memory");
      x = fmaxf(x, other);
    }
    // Nobody leaves while others read.
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;"
                 ::: "memory");
  }
#endif
  return x;
}

// Packs row `row`, by a cluster of kSpread blocks of whole warps: `first(i)` makes four elements from the i-th
// on, once for each that exists; `again(i)` gives them a second time. Elements past `k` are
// not asked for. A row that is not live is zero. A thread has every blockDim-th piece of two
// times four inputs, and keeps the first kHeld of them.
template <int kSpread, class First, class Again>
__device__ inline void pack_row(const PackTo &o, int row, bool live, int k, First first,
                                Again again) {
  constexpr int kHeld = 3;
  const int group = row / 8 / o.tiles, tile = row / 8 % o.tiles;
  uint4 *to = o.packed + (static_cast<int64_t>(group) * o.pairs * o.tiles + tile) * 32 +
              row % 8 * 4;
  const int pieces = o.pairs * 4;
  const int step = kSpread * blockDim.x, mine = blockIdx.x % kSpread * blockDim.x + threadIdx.x;
  auto place = [&](int piece) -> uint4 & {
    return to[static_cast<int64_t>(piece / 4) * o.tiles * 32 + piece % 4];
  };
  if (!live) {
    for (int piece = mine; piece < pieces; piece += step) place(piece) = make_uint4(0, 0, 0, 0);
    if (mine == 0) o.factors[row] = 1.0f;
    return;
  }

  const int apart = o.order == kBlocks ? 32 : 4;
  auto start = [&](int piece) {
    const int pair = piece / 4, t = piece % 4;
    return o.order == kBlocks ? pair / 8 * 256 + 64 * t + pair % 8 * 4 : pair * 32 + 8 * t;
  };
  const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float4 held[kHeld][2];
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int piece = mine + i * step;
    if (piece >= pieces) break;
    const int at = start(piece);
    held[i][0] = at < k ? first(at) : zero;
    held[i][1] = at + apart < k ? first(at + apart) : zero;
  }
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    if (mine + i * step >= pieces) break;
    largest = fmaxf(largest, fmaxf(linear::largest_of(held[i][0]), linear::largest_of(held[i][1])));
  }
  for (int piece = mine + kHeld * step; piece < pieces; piece += step) {
    const int at = start(piece);
    if (at < k) largest = fmaxf(largest, linear::largest_of(first(at)));
    if (at + apart < k) largest = fmaxf(largest, linear::largest_of(first(at + apart)));
  }
  float up = 1.0f, down = 1.0f;
  if (o.order != kBfloatScalars) {
    largest = cluster_largest<kSpread>(linear::block_largest(largest));
    linear::row_scale(largest, up, down);
  }
  if (mine == 0) o.factors[row] = down;
  auto put = [&](int piece, float4 a, float4 b) {
    const uint2 low = linear::pack4(o.order, a, up), high = linear::pack4(o.order, b, up);
    place(piece) = make_uint4(low.x, low.y, high.x, high.y);
  };
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int piece = mine + i * step;
    if (piece < pieces) put(piece, held[i][0], held[i][1]);
  }
  for (int piece = mine + kHeld * step; piece < pieces; piece += step) {
    const int at = start(piece);
    put(piece, at < k ? again(at) : zero, at + apart < k ? again(at + apart) : zero);
  }
}

// Blocks that share a wide row; ops/activation.rs of the driver knows it.
#if __CUDA_ARCH__ >= 900
constexpr int kSpread = 4;
#define FT_SPREAD __cluster_dims__(4, 1, 1)
#else
constexpr int kSpread = 1;
#define FT_SPREAD
#endif

}  // namespace ft

// Parameters of kernels that pack, and what they say.
#define FT_PACK_PARAMETERS unsigned order, int pairs, int tiles, uint4 *packed, float *factors
#define FT_PACK_TO \
  const ft::PackTo to { order, pairs, tiles, packed, factors }
