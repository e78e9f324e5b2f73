// Blocks of queries at splits of the keys, and at the keys next to them, for steps on
// tensor cores. What is computed, and in which order, is told in attention_step.cu.
#pragma once

#include "attention_mma.cuh"

namespace ft::attention {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr unsigned kAll = 0xffffffffu;
constexpr int kSlice = 32;      // columns of values of a warp
constexpr int kGroups = ft::kSplit / 16;  // of 16 keys, each scored by a warp
static_assert(kGroups == kWarps, "");

// A row's last keys, those of its tail: as many as there are levels in the deepest tree.
constexpr int kTail = ft::kMaxTree;

struct Args {
  ft::Site site;
  const int *control, *parents, *depths;
  const float *q;
  const char *k, *v;
  float *scratch;
  int mask, window, capacity, context, kv_heads, group, q_stride;
  float scale;
  long long records;
};

// Positions that a query sees: those from `lo` to `tail` on tensor cores, the rest, up to
// `hi`, after them. Where the tail starts depends on the row's position (and window) alone.
struct Reach {
  int lo, tail, hi;
};

__device__ inline Reach reach(const ft::Call &call, int row, int depth) {
  const ft::Span span = call.span(row, depth);
  const int own = call.before + (call.mask == ft::kTree ? depth : row);
  return {span.lo, max(span.lo, own + 1 - kTail), span.hi};
}

// End of the splits that some row has keys before its tail in.
__device__ inline int end_split(const ft::Call &call) {
  return max(0, call.before + call.rows - kTail + ft::kSplit - 1) / ft::kSplit;
}

// The thread's number, asked for anew. What follows from it would else be worked out before a
// block's first item and kept, and below sm_90 take registers that products need.
__device__ inline int this_thread() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  int number;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
  return number;
#else
  return threadIdx.x;
#endif
}

// Statistics of sums of probabilities, in units of log2.
__device__ inline ft::Factors join(ft::Stats &stats, const ft::Stats &later) {
  const float top = fmaxf(stats.max, later.max);
  const ft::Factors f{exp2_fast(stats.max - top), exp2_fast(later.max - top)};
  stats.max = top;
  stats.sum = fmaf(stats.sum, f.before, __fmul_rn(later.sum, f.later));
  return f;
}

// Where values and statistics of records lie in scratch memory: those of splits or chunks,
// then one of each query's tail.
struct Records {
  float *values;
  float2 *stats;
  __device__ Records(float *scratch, long long records, int queries, int d)
      : values(scratch), stats(reinterpret_cast<float2 *>(scratch + (records + queries) * d)) {}
};

// Queries of a block: 8 TILES.
template <int TILES>
struct Queries {
  static constexpr int kMost = 8 * TILES;
  Reach reach[kMost];
  int number[kMost];  // row * Hq + head
  int row[kMost];
  float unit[kMost];  // of scores, in log2
};

// Queries in two parts as operands: of each 32 elements and 8 queries, 8 neighbouring
// elements in a lane. A warp takes a query at a time; those past the last are zeros. Rows of
// queries lie on multiples of 16 bytes.
template <int D, int TILES, bool kBfloat>
__device__ inline void load_queries(const Args &args, Queries<TILES> &queries, int count,
                                    uint4 *high, uint4 *low) {
  static_assert(kWarps == 8, "");
  const int thread = this_thread(), warp = thread / 32, lane = thread % 32;
#pragma unroll 3
  for (int tile = 0; tile < TILES; ++tile) {
    const int n = kWarps * tile + warp;
    float x[8] = {};
    if (n < count && 8 * lane < D) {
      const float4 *from = reinterpret_cast<const float4 *>(
          args.q + (long long)queries.number[n] * args.q_stride + 8 * lane);
      const float4 a = from[0], b = from[1];
      x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
      x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
    }
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(x[i]));
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) {
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, step));
    }
    const float factor = query_factor(largest);
    uint32_t h[4], l[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      two_parts<kBfloat>(__fmul_rn(x[2 * i], factor), __fmul_rn(x[2 * i + 1], factor), h[i], l[i]);
    }
    if (8 * lane < D) {
      const int at = (lane / 4 * TILES + tile) * 32 + 4 * warp + lane % 4;
      high[at] = make_uint4(h[0], h[1], h[2], h[3]);
      low[at] = make_uint4(l[0], l[1], l[2], l[3]);
    }
    if (lane == 0) queries.unit[n] = __fdiv_rn(__fmul_rn(args.scale, kLog2e), factor);
  }
}

// Keys `first + g` and `first + g + 8` of a lane, elements from 32 kBegin on; zeros unless
// the keys lie from `from` to `to`.
template <int kBegin, int kPart>
__device__ inline void load_keys(uint4 (&key)[kPart][2], const char *head, int slot_bytes,
                                 int first, int from, int to) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int slot = first + g + 8 * r;
    const bool live = slot >= from && slot < to;
    const char *at = head + (long long)(live ? slot : from) * slot_bytes + 64 * kBegin + 16 * t;
#pragma unroll
    for (int j = 0; j < kPart; ++j) {
      key[j][r] = live ? *reinterpret_cast<const uint4 *>(at + 64 * j) : make_uint4(0, 0, 0, 0);
    }
  }
}

// Adds products of 16 keys with all queries: of lane 4 g + t keys g and g + 8, queries 2 t
// and 2 t + 1 of every eight. Elements ascend in groups of 32, of which those of places 0 to
// 3 of each eight come before those of places 4 to 7, low parts before high ones.
template <int TILES, bool kBfloat, int kBegin, int kPart>
__device__ inline void score(float (&scores)[TILES][4], const uint4 (&key)[kPart][2],
                             const uint4 *high, const uint4 *low) {
  const int lane = threadIdx.x % 32;
  if constexpr (kBegin == 0) {
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0.0f;
    }
  }
#pragma unroll
  for (int j = 0; j < kPart; ++j) {
    const uint32_t first[4] = {key[j][0].x, key[j][1].x, key[j][0].y, key[j][1].y};
    const uint32_t second[4] = {key[j][0].z, key[j][1].z, key[j][0].w, key[j][1].w};
    // Products with sums of their own follow each other: none waits for the last.
    constexpr int kTurn = TILES < 3 ? TILES : 3;
    static_assert(TILES % kTurn == 0, "");
#pragma unroll
    for (int turn = 0; turn < TILES; turn += kTurn) {
      uint4 l[kTurn], h[kTurn];
#pragma unroll
      for (int n = 0; n < kTurn; ++n) {
        const int at = ((kBegin + j) * TILES + turn + n) * 32 + lane;
        l[n] = low[at], h[n] = high[at];
      }
#pragma unroll
      for (int n = 0; n < kTurn; ++n) ft::mma<kBfloat>(scores[turn + n], first, l[n].x, l[n].y);
#pragma unroll
      for (int n = 0; n < kTurn; ++n) ft::mma<kBfloat>(scores[turn + n], second, l[n].z, l[n].w);
#pragma unroll
      for (int n = 0; n < kTurn; ++n) ft::mma<kBfloat>(scores[turn + n], first, h[n].x, h[n].y);
#pragma unroll
      for (int n = 0; n < kTurn; ++n) ft::mma<kBfloat>(scores[turn + n], second, h[n].z, h[n].w);
    }
  }
}

// Four values of four keys each, `first` and those 1, 8 and 9 further on; zeros unless they
// lie before `to`.
__device__ inline void load_values(uint2 (&value)[4], const char *head, int slot_bytes, int first,
                                   int to) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int slot = first + i % 2 + 8 * (i / 2);
    value[i] = slot < to ? *reinterpret_cast<const uint2 *>(head + (long long)slot * slot_bytes)
                         : make_uint2(0, 0);
  }
}

// The values as rows of two products: columns 0 and 1 of each lane, then 2 and 3.
__device__ inline void operands(uint32_t (&a)[2][4], const uint2 (&value)[4]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint2 x = value[2 * i], y = value[2 * i + 1];
    a[0][2 * i] = __byte_perm(x.x, y.x, 0x5410);
    a[0][2 * i + 1] = __byte_perm(x.x, y.x, 0x7632);
    a[1][2 * i] = __byte_perm(x.y, y.y, 0x5410);
    a[1][2 * i + 1] = __byte_perm(x.y, y.y, 0x7632);
  }
}

}  // namespace ft::attention
