// A block of queries at one split of the keys: scores, softmax, sums of values. The order
// of sums is told in attention.cu.
#pragma once

#include "cached_heads.cuh"
#include "span.cuh"

namespace ft::attention {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr unsigned kAll = 0xffffffffu;
constexpr float kNothing = -INFINITY;

struct Args {
  ft::Site site;
  const int *control, *parents, *depths;
  const float *q;
  const void *k, *v;
  float *out, *scratch;
  int k_type, v_type;
  int mask, window, capacity, context, kv_heads, group, q_stride, d;
  float scale;
  int whole;
  long long records;
};

// Sums over the warp of 2 HALF values of each lane: lane l gets that of value l. Called
// with 16; halves the number of values, and the lanes a value is spread over.
template <int HALF>
__device__ inline float transposed_sums(float (&x)[2 * HALF]) {
  const bool upper = threadIdx.x & HALF;
  float y[HALF];
#pragma unroll
  for (int i = 0; i < HALF; ++i) {
    const float kept = upper ? x[i + HALF] : x[i], sent = upper ? x[i] : x[i + HALF];
    y[i] = __fadd_rn(kept, __shfl_xor_sync(kAll, sent, HALF));
  }
  if constexpr (HALF == 1) {
    return y[0];
  } else {
    return transposed_sums<HALF / 2>(y);
  }
}

// How a thread folds a part into what a query has so far.
enum How : int { kSkip = 0, kCopy = 1, kFold = 2 };

template <int NQ, int E>
struct Room {
  static constexpr int kPairs = 16 * E;  // pairs of columns, each with its thread
  static constexpr int kParts = kThreads / kPairs;
  static constexpr int kPitch = NQ + 4;  // keeps rows of scores apart in the banks
  float4 q[NQ][8 * E];                   // by place_of
  float scores[ft::kSplit][kPitch];
  float2 parts[kParts - 1][NQ][kPairs];
  ft::Tree tree;
  ft::Rowset paths[NQ];
  ft::Span spans[NQ];
  int queries[NQ];                       // row * Hq + head
  ft::Stats chunk[NQ], total[NQ];
  ft::Factors factors[NQ];
  int how[NQ];
  bool started[NQ], begun[NQ];
  unsigned short seen[ft::kSplit];      // queries that see a key
  unsigned short heirs[ft::kMaxTree];   // queries that descend from a row
};

// Where an element of a query lies in shared memory: lanes read two or four of theirs at
// once, each from banks of its own.
template <int E>
__device__ inline int place_of(int e) {
  if constexpr (E < 8) return e;
  return 128 * (e % 8 / 4) + 4 * (e / 8) + e % 4;
}

template <int E>
__device__ inline void take_query(float (&x)[E], const float *q) {
  const int lane = threadIdx.x % 32;
  if constexpr (E == 2) {
    const float2 y = *reinterpret_cast<const float2 *>(q + 2 * lane);
    x[0] = y.x, x[1] = y.y;
  } else {
#pragma unroll
    for (int n = 0; n < E; n += 4) {
      const float4 y = *reinterpret_cast<const float4 *>(q + 32 * n + 4 * lane);
      x[n] = y.x, x[n + 1] = y.y, x[n + 2] = y.z, x[n + 3] = y.w;
    }
  }
}

// Queries to shared memory, zero past their ends and past the last of them; a warp for
// each, all loads under way before the first is used.
template <int NQ, int E>
__device__ inline void load_queries(const Args &args, Room<NQ, E> &room, int count) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float x[NQ / kWarps][E];
#pragma unroll
  for (int i = 0; i < NQ / kWarps; ++i) {
    const int n = warp + i * kWarps;
    const float *from = args.q + (n < count ? (long long)room.queries[n] * args.q_stride : 0);
#pragma unroll
    for (int c = 0; c < E; ++c) {
      const int e = lane + 32 * c;
      x[i][c] = n < count && e < args.d ? from[e] : 0.0f;
    }
  }
#pragma unroll
  for (int i = 0; i < NQ / kWarps; ++i) {
    float *to = reinterpret_cast<float *>(room.q[warp + i * kWarps]);
#pragma unroll
    for (int c = 0; c < E; ++c) to[place_of<E>(lane + 32 * c)] = x[i][c];
  }
}

// Brings the heads in some slots to the second-level cache.
__device__ inline void expect(const Heads &heads, int slots, int end) {
  constexpr int kLine = 128;
  const int size = heads.type == kF32 ? 4 : 2;
  const int lines = (heads.d * size + kLine - 1) / kLine;
  for (int i = threadIdx.x; i < (end - slots) * lines; i += kThreads) {
    const long long at = (long long)(slots + i / lines) * heads.slot * size;
    const char *line = heads.memory + at + i % lines * kLine;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
  }
}

// A block of queries at one split.
template <int NQ, int E, bool WIDE>
struct Worker {
  using R = Room<NQ, E>;
  const Args &args;
  const ft::Call &call;
  R &room;
  const int count;  // live queries
  const Heads k, v;
  const int seen_from, seen_to;  // positions that some query sees
  const int all_from, all_to;    // and that all do
  int start, shared, low, high;  // of the split; keys in their slots; seen by some query
  int inner_low, inner_high;     // seen by all
  bool tail;                     // whether tree rows may have positions here

  __device__ void enter(int split) {
    start = split * ft::kSplit;
    low = max(0, seen_from - start), high = min(ft::kSplit, seen_to - start);
    inner_low = max(0, all_from - start), inner_high = min(ft::kSplit, all_to - start);
    const int after = call.mask == ft::kTree ? call.before : call.before + call.rows;
    shared = min(ft::kSplit, max(0, after - start));
    tail = call.mask == ft::kTree && high > shared;
  }

  // Position of a tree row within the split, or -1.
  __device__ int place(int row) const {
    const int at = call.before + room.tree.depths[row] - start;
    return at >= 0 && at < ft::kSplit ? at : -1;
  }

  // Products of all queries with all keys that some query sees: a block of keys and
  // queries for each of the 32 lanes to end up with one.
  __device__ void score() {
    constexpr int kBatch = 4, kGroup = 32 / kBatch;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int keys = shared + (tail ? call.rows : 0);
    for (int first = warp * kBatch; first < keys; first += kWarps * kBatch) {
      if (first + kBatch <= shared && (first + kBatch <= low || first >= high)) continue;
      float key[kBatch][E];
      int slots[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        // Keys that nobody sees are not read: slot 0 stands in for them.
        const int number = first + i;
        int from = 0;
        if (number < shared) {
          if (number >= low && number < high) from = start + number;
        } else if (number < keys) {
          from = call.before + number - shared;
        }
        slots[i] = from;
      }
      load<WIDE>(key, k, slots, E * lane);
      const int number = first + lane / kGroup, row = number - shared;
      int to = -1;
      if (number < shared) {
        to = number;
      } else if (number < keys) {
        to = place(row);
      }
#pragma unroll 1
      for (int group = 0; group < count; group += kGroup) {
        float sums[32];
#pragma unroll
        for (int i = 0; i < 32; ++i) sums[i] = 0.0f;
#pragma unroll
        for (int n = 0; n < kGroup; ++n) {
          float query[E];
          take_query(query, reinterpret_cast<const float *>(room.q[group + n]));
#pragma unroll
          for (int i = 0; i < kBatch; ++i) {
#pragma unroll
            for (int e = 0; e < E; ++e) {
              sums[kGroup * i + n] = fmaf(key[i][e], query[e], sums[kGroup * i + n]);
            }
          }
        }
        const float score = __fmul_rn(transposed_sums<16>(sums), args.scale);
        const int n = group + lane % kGroup;
        const bool own = row < 0 || (room.paths[n] >> row & 1);
        if (to >= 0 && own) room.scores[to][n] = score;
      }
    }
  }

  // Scores to probabilities, a query for each warp at a time; how each is to be folded.
  __device__ void softmax() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int n = warp; n < count; n += kWarps) {
      const int lo = room.spans[n].lo - start, hi = room.spans[n].hi - start;
      float x[4], top = kNothing;
      bool in[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = lane + 32 * i;
        in[i] = key >= lo && key < hi;
        x[i] = in[i] ? room.scores[key][n] : kNothing;
        top = fmaxf(top, x[i]);
      }
#pragma unroll
      for (int step = 16; step > 0; step >>= 1) {
        top = fmaxf(top, __shfl_xor_sync(kAll, top, step));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i] = in[i] ? expf(x[i] - top) : 0.0f;
        if (in[i]) room.scores[lane + 32 * i][n] = x[i];
      }
      float sum = __fadd_rn(__fadd_rn(x[0], x[1]), __fadd_rn(x[2], x[3]));
#pragma unroll
      for (int step = 16; step > 0; step >>= 1) {
        sum = __fadd_rn(sum, __shfl_xor_sync(kAll, sum, step));
      }
      if (lane == 0) {
        if (hi <= 0 || lo >= ft::kSplit) {
          room.how[n] = kSkip;
        } else {
          fold_into(n, room.chunk, room.started, ft::Stats{top, sum});
        }
      }
    }
    if (threadIdx.x < ft::kSplit && (inner_low > low || inner_high < high)) {
      unsigned seen = 0;
      for (int n = 0; n < count; ++n) {
        const int key = start + int(threadIdx.x);
        seen |= unsigned(key >= room.spans[n].lo && key < room.spans[n].hi) << n;
      }
      room.seen[threadIdx.x] = static_cast<unsigned short>(seen);
    }
  }

  // By one thread: a query's statistics, and how its values follow.
  __device__ void fold_into(int n, ft::Stats *stats, bool *any, const ft::Stats &later) {
    if (any[n]) {
      room.factors[n] = ft::fold(stats[n], later);
      room.how[n] = kFold;
    } else {
      stats[n] = later;
      any[n] = true;
      room.how[n] = kCopy;
    }
  }

  __device__ void weigh(float (&sums)[NQ][2], const float *p, const float (&v)[2],
                        unsigned seen) const {
#pragma unroll
    for (int n = 0; n < NQ; n += 4) {
      if (n >= count) break;
      const float4 four = *reinterpret_cast<const float4 *>(p + n);
      const float w[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (seen >> (n + i) & 1) {
          sums[n + i][0] = fmaf(w[i], v[0], sums[n + i][0]);
          sums[n + i][1] = fmaf(w[i], v[1], sums[n + i][1]);
        }
      }
    }
  }

  // Some keys from `key` on, those before `to`.
  template <int B, bool ALL>
  __device__ void mix_keys(float (&sums)[NQ][2], int key, int to, int pair) const {
    float x[B][2];
    int slots[B];
#pragma unroll
    for (int i = 0; i < B; ++i) slots[i] = start + min(key + i, to - 1);
    load<WIDE>(x, v, slots, 2 * pair);
#pragma unroll
    for (int i = 0; i < B; ++i) {
      if (key + i < to) {
        weigh(sums, room.scores[key + i], x[i], ALL ? kAll : room.seen[key + i]);
      }
    }
  }

  // Sums of values of one part of the split, for columns 2 * pair and the next.
  __device__ void mix(float (&sums)[NQ][2], int pair, int part) {
#pragma unroll
    for (int n = 0; n < NQ; ++n) sums[n][0] = sums[n][1] = 0.0f;
    constexpr int kBatch = 8, kEach = ft::kSplit / R::kParts;
    const int from = max(low, part * kEach);
    const int to = min(min(high, shared), (part + 1) * kEach);
    // Queries past the live ones may be taken along: nothing comes of them.
    const bool all = inner_low <= from && to <= inner_high;
    int key = from;
    if (all) {
#pragma unroll 1
      for (; key + kBatch <= to; key += kBatch) mix_keys<kBatch, true>(sums, key, to, pair);
    }
#pragma unroll 1
    for (; key < to; key += kBatch / 2) {
      if (all) {
        mix_keys<kBatch / 2, true>(sums, key, to, pair);
      } else {
        mix_keys<kBatch / 2, false>(sums, key, to, pair);
      }
    }
    if (!tail) return;
#pragma unroll 1
    for (int row = 0; row < call.rows; ++row) {
      const int key = place(row);
      if (key < 0 || key / kEach != part || room.heirs[row] == 0) continue;
      float x[1][2];
      const int slots[1] = {call.before + row};
      load<WIDE>(x, v, slots, 2 * pair);
      weigh(sums, room.scores[key], x[0], room.heirs[row]);
    }
  }
};

}  // namespace ft::attention
