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
  // Where a row's pieces go.
  __device__ uint4 *row(int number) const {
    const int group = number / 8 / tiles, tile = number / 8 % tiles;
    return packed + (static_cast<int64_t>(group) * pairs * tiles + tile) * 32 + number % 8 * 4;
  }
  // That of one of them, four to a pair.
  __device__ uint4 &place(uint4 *row, int piece) const {
    return row[static_cast<int64_t>(piece / 4) * tiles * 32 + piece % 4];
  }
};

// The largest of what the blocks of a cluster of kSpread have. `cluster_end` has to follow.
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
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  }
#endif
  return x;
}

// Nobody leaves while others read.
template <int kSpread>
__device__ inline void cluster_end() {
#if __CUDA_ARCH__ >= 900
  if constexpr (kSpread > 1) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Pieces of two times four inputs that a thread keeps between the search for the largest and
// packing; it has every blockDim-th piece of a row, and reads later ones twice.
constexpr int kHeld = 3;

// The pieces of a thread, in a cluster of kSpread blocks to a row.
template <int kSpread>
struct Pieces {
  int all, step, mine, apart;
  bool blocks;

  __device__ Pieces(const PackTo &o)
      : all(o.pairs * 4),
        step(kSpread * blockDim.x),
        mine(blockIdx.x % kSpread * blockDim.x + threadIdx.x),
        apart(o.order == kBlocks ? 32 : 4),
        blocks(o.order == kBlocks) {}
  // The first input of a piece; four others follow `apart` from there.
  __device__ int start(int piece) const {
    const int pair = piece / 4, t = piece % 4;
    return blocks ? pair / 8 * 256 + 64 * t + pair % 8 * 4 : pair * 32 + 8 * t;
  }
};

// Calls `visit(i, half, at)` for each half, of inputs from `at` on, of the i-th piece that
// the thread will hold.
template <int kSpread, class Visit>
__device__ inline void each_held(const PackTo &o, int k, Visit visit) {
  const Pieces<kSpread> pieces(o);
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int piece = pieces.mine + i * pieces.step;
    if (piece >= pieces.all) break;
    const int at = pieces.start(piece);
    if (at < k) visit(i, 0, at);
    if (at + pieces.apart < k) visit(i, 1, at + pieces.apart);
  }
}

// Packs row `row`, by a cluster of kSpread blocks of whole warps: `hold(i, half, at)` makes
// four elements from `at` on, for a half of the i-th piece that is held, `first(at)` for
// others, once for each that exists; `again(at)` gives these a second time. Elements past `k`
// are not asked for. A row that is not live is zero.
template <int kSpread, class Hold, class First, class Again>
__device__ inline void pack_row(const PackTo &o, int row, bool live, int k, Hold hold,
                                First first, Again again) {
  uint4 *const to = o.row(row);
  const Pieces<kSpread> pieces(o);
  auto place = [&](int piece) -> uint4 & { return o.place(to, piece); };
  if (!live) {
    for (int piece = pieces.mine; piece < pieces.all; piece += pieces.step) {
      place(piece) = make_uint4(0, 0, 0, 0);
    }
    if (pieces.mine == 0) o.factors[row] = 1.0f;
    return;
  }

  const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float4 held[kHeld][2];
#pragma unroll
  for (int i = 0; i < kHeld; i++) held[i][0] = held[i][1] = zero;
  each_held<kSpread>(o, k, [&](int i, int half, int at) { held[i][half] = hold(i, half, at); });
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    largest = fmaxf(largest, fmaxf(linear::largest_of(held[i][0]), linear::largest_of(held[i][1])));
  }
  const int rest = pieces.mine + kHeld * pieces.step;
  for (int piece = rest; piece < pieces.all; piece += pieces.step) {
    const int at = pieces.start(piece), more = at + pieces.apart;
    if (at < k) largest = fmaxf(largest, linear::largest_of(first(at)));
    if (more < k) largest = fmaxf(largest, linear::largest_of(first(more)));
  }
  float up = 1.0f, down = 1.0f;
  if (o.order != kBfloatScalars) {
    largest = cluster_largest<kSpread>(linear::block_largest(largest));
    linear::row_scale(largest, up, down);
  }
  if (pieces.mine == 0) o.factors[row] = down;
  auto put = [&](int piece, float4 a, float4 b) {
    const uint2 low = linear::pack4(o.order, a, up), high = linear::pack4(o.order, b, up);
    place(piece) = make_uint4(low.x, low.y, high.x, high.y);
  };
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int piece = pieces.mine + i * pieces.step;
    if (piece < pieces.all) put(piece, held[i][0], held[i][1]);
  }
  for (int piece = rest; piece < pieces.all; piece += pieces.step) {
    const int at = pieces.start(piece), more = at + pieces.apart;
    put(piece, at < k ? again(at) : zero, more < k ? again(more) : zero);
  }
  if (o.order != kBfloatScalars) cluster_end<kSpread>();
}

// The same, of elements that need no preparation.
template <int kSpread, class First, class Again>
__device__ inline void pack_row(const PackTo &o, int row, bool live, int k, First first,
                                Again again) {
  auto hold = [&](int, int, int at) { return first(at); };
  pack_row<kSpread>(o, row, live, k, hold, first, again);
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
