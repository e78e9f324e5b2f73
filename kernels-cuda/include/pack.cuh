// Rows of activations as operands of tensor-core products read them.
//
// A row is packed into B operands: [group][pair][8-row tile][lane][16 bytes], lane `4 g + t`
// having row g of the tile, `tiles` tiles to a group; which inputs a lane has of a pair is in
// brick.cuh. For f16 the largest magnitude of a row is scaled into 2^14 .. 2^15 by a power of
// two (down from 2^-100 at least), whose inverse is its factor; smaller values keep eleven
// bits down to 2^-28 of the largest. NaN and infinity stay what they are. Inputs past the end
// and rows that fill up a group are zero. A row alone decides its bits.
#pragma once

#include "mma.cuh"
#include "wide.cuh"

namespace ft {

constexpr int kPackThreads = 1024;  // of a block, at most

// Orders of inputs: brick.cuh. The numbers of ops/linear/kernels.rs of the driver.
enum Order : unsigned { kBlocks = 0, kScalars = 1, kBfloatScalars = 2 };

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

// Largest of a block of whole warps, the same for each thread.
__device__ inline float block_largest(float x) {
  __shared__ float each[kPackThreads / 32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  if (threadIdx.x % 32 == 0) each[threadIdx.x / 32] = x;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  x = lane < static_cast<int>(blockDim.x) / 32 ? each[lane] : 0.0f;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}

__device__ inline float largest_of(float4 x) {
  return fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
}

// Two registers of an operand.
__device__ inline uint2 pack4(unsigned order, float4 x, float up) {
  x = make_float4(__fmul_rn(x.x, up), __fmul_rn(x.y, up), __fmul_rn(x.z, up),
                  __fmul_rn(x.w, up));
  if (order == kBlocks) return make_uint2(pack_half(x.x, x.z), pack_half(x.y, x.w));
  if (order == kScalars) return make_uint2(pack_half(x.x, x.y), pack_half(x.z, x.w));
  return make_uint2(pack_bfloat(x.x, x.y), pack_bfloat(x.z, x.w));
}

// Packs row `row`, by one block of whole warps: `first(i)` makes four elements from the i-th
// on, once for each that exists; `again(i)` gives them a second time. Elements past `k` are
// not asked for. A row that is not live is zero. A thread has every blockDim-th piece of two
// times four inputs, and keeps the first kHeld of them.
template <class First, class Again>
__device__ inline void pack_row(const PackTo &o, int row, bool live, int k, First first,
                                Again again) {
  constexpr int kHeld = 3;
  const int group = row / 8 / o.tiles, tile = row / 8 % o.tiles;
  uint4 *to = o.packed + (static_cast<int64_t>(group) * o.pairs * o.tiles + tile) * 32 +
              row % 8 * 4;
  const int pieces = o.pairs * 4;
  auto place = [&](int piece) -> uint4 & {
    return to[static_cast<int64_t>(piece / 4) * o.tiles * 32 + piece % 4];
  };
  if (!live) {
    for (int piece = threadIdx.x; piece < pieces; piece += blockDim.x) {
      place(piece) = make_uint4(0, 0, 0, 0);
    }
    if (threadIdx.x == 0) o.factors[row] = 1.0f;
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
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece >= pieces) break;
    const int at = start(piece);
    held[i][0] = at < k ? first(at) : zero;
    held[i][1] = at + apart < k ? first(at + apart) : zero;
  }
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    if (static_cast<int>(threadIdx.x + i * blockDim.x) >= pieces) break;
    largest = fmaxf(largest, fmaxf(largest_of(held[i][0]), largest_of(held[i][1])));
  }
  for (int piece = threadIdx.x + kHeld * blockDim.x; piece < pieces; piece += blockDim.x) {
    const int at = start(piece);
    if (at < k) largest = fmaxf(largest, largest_of(first(at)));
    if (at + apart < k) largest = fmaxf(largest, largest_of(first(at + apart)));
  }
  float up = 1.0f, down = 1.0f;
  if (o.order != kBfloatScalars) {
    largest = block_largest(largest);
    const int biased = static_cast<int>(__float_as_uint(largest) >> 23);
    const int exponent = min(127, max(-100, biased - 127));
    up = __uint_as_float(static_cast<unsigned>(14 - exponent + 127) << 23);
    down = __uint_as_float(static_cast<unsigned>(exponent - 14 + 127) << 23);
  }
  if (threadIdx.x == 0) o.factors[row] = down;
  auto put = [&](int piece, float4 a, float4 b) {
    const uint2 low = pack4(o.order, a, up), high = pack4(o.order, b, up);
    place(piece) = make_uint4(low.x, low.y, high.x, high.y);
  };
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece < pieces) put(piece, held[i][0], held[i][1]);
  }
  for (int piece = threadIdx.x + kHeld * blockDim.x; piece < pieces; piece += blockDim.x) {
    const int at = start(piece);
    put(piece, at < k ? again(at) : zero, at + apart < k ? again(at + apart) : zero);
  }
}

}  // namespace ft

// Parameters of kernels that pack, and what they say.
#define FT_PACK_PARAMETERS unsigned order, int pairs, int tiles, uint4 *packed, float *factors
#define FT_PACK_TO \
  const ft::PackTo to { order, pairs, tiles, packed, factors }
