// Attention with grouped queries over the cache: causal, over a token tree, of a block.
//
// Layouts: q [M, Hq, q_stride] F32; k, v [context, Hkv, d] F32, F16 or BF16, of types of
// their own; out [M, Hq, d] F32. Query head h reads key-value head h / group.
//
// A split is 128 keys at an absolute multiple of 128 positions. Each query gets of each
// split it sees a maximum, a sum and a sum of values. These are folded in ascending order
// within a chunk (16 splits at an absolute multiple), then the chunks in ascending order:
// a tree of sums that depends on the row's own positions alone, wherever it is computed.
//
// Launch: `attention` is a grid as large as the card holds, or as there is work for at
// most. Its blocks of 256 threads take items: up to NQ queries (rows and heads of one
// key-value head, counted together) and one split, or, when the scratch memory cannot hold
// what all splits leave, one chunk. What an item leaves goes to scratch memory, and
// `attention_combine` folds it. In prefill an item is all splits of its queries, from the
// first to the last, folded as it goes, and there is no second kernel.
//
// Within a split: a warp takes 16 keys, 4 at a time in registers, E elements of each
// in a lane. A product's order: elements of a lane, then a butterfly of 5 steps. A sum of
// probabilities: four keys of a lane in pairs, then a butterfly. A sum of values: keys
// ascending in each of KG equal parts of the split (a thread has two columns and one
// part), then parts ascending. A key that a query does not see takes no part.
//
// Tree: the key at position `committed + t` of a row lies in the slot of its ancestor at
// depth t. Slots after the committed ones are gone through in row order, each under the
// position of its depth, by those queries that descend from it: along a path rows ascend,
// so this is the order of positions.
//
// Bound: memory (the keys and values once for NQ queries) for one row of a model with few
// query heads to a key-value head, else multiply-adds, 4 d for each query and key.

#include "span.cuh"

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr unsigned kAll = 0xffffffffu;
constexpr float kNothing = -INFINITY;

// Types of a cache, the numbers of ops/attention.rs.
enum Type : int { kF32 = 0, kF16 = 1, kBF16 = 2 };

struct Args {
  ft::Site site;
  const int *control, *parents, *depths;
  const float *q;
  const void *k, *v;
  float *out, *scratch;
  int k_type, v_type, k_wide, v_wide;
  int mask, window, capacity, context, kv_heads, group, q_stride, d;
  float scale;
  int whole;
  long long records;
};

__device__ inline float f16(unsigned short x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}

__device__ inline float bf16(unsigned x) { return __uint_as_float(x << 16); }

// Values of one type as floats: one, or N that lie on a multiple of their size.
template <int TYPE>
struct Cache;

template <>
struct Cache<kF32> {
  const float *at;
  __device__ explicit Cache(const void *memory) : at(static_cast<const float *>(memory)) {}
  __device__ float one(size_t i) const { return at[i]; }
  template <int N>
  __device__ void many(float (&x)[N], size_t i) const {
    if constexpr (N == 2) {
      const float2 y = *reinterpret_cast<const float2 *>(at + i);
      x[0] = y.x, x[1] = y.y;
    } else {
#pragma unroll
      for (int n = 0; n < N; n += 4) {
        const float4 y = *reinterpret_cast<const float4 *>(at + i + n);
        x[n] = y.x, x[n + 1] = y.y, x[n + 2] = y.z, x[n + 3] = y.w;
      }
    }
  }
};

template <int TYPE>
struct Cache16 {
  const unsigned short *at;
  __device__ explicit Cache16(const void *memory)
      : at(static_cast<const unsigned short *>(memory)) {}
  __device__ static float value(unsigned x) {
    return TYPE == kF16 ? f16(static_cast<unsigned short>(x)) : bf16(x);
  }
  __device__ float one(size_t i) const { return value(at[i]); }
  template <int N>
  __device__ void many(float (&x)[N], size_t i) const {
    unsigned words[N / 2];
    if constexpr (N == 2) {
      words[0] = *reinterpret_cast<const unsigned *>(at + i);
    } else if constexpr (N == 4) {
      const uint2 y = *reinterpret_cast<const uint2 *>(at + i);
      words[0] = y.x, words[1] = y.y;
    } else {
      static_assert(N == 8, "");
      const uint4 y = *reinterpret_cast<const uint4 *>(at + i);
      words[0] = y.x, words[1] = y.y, words[2] = y.z, words[3] = y.w;
    }
#pragma unroll
    for (int n = 0; n < N / 2; ++n) {
      x[2 * n] = value(words[n] & 0xffff);
      x[2 * n + 1] = value(words[n] >> 16);
    }
  }
};
template <>
struct Cache<kF16> : Cache16<kF16> {
  using Cache16::Cache16;
};
template <>
struct Cache<kBF16> : Cache16<kBF16> {
  using Cache16::Cache16;
};

// Where the heads of a cache's slots are: those of one key-value head.
struct Heads {
  const char *memory;  // the head in slot 0
  int type;
  bool wide;           // whether N values may be read at once
  int d;
  int slot;            // elements from one slot to the next
};

// N values from `first` on of the heads in some slots, zero past the d-th.
template <int TYPE, int B, int N>
__device__ inline void load_as(float (&x)[B][N], const Heads &heads,
                               const int (&slots)[B], int first) {
  const Cache<TYPE> cache(heads.memory);
#pragma unroll
  for (int b = 0; b < B; ++b) {
    const size_t at = (long long)slots[b] * heads.slot + first;
#pragma unroll
    for (int n = 0; n < N; ++n) x[b][n] = 0.0f;
    if (heads.wide) {
      if (first < heads.d) cache.many(x[b], at);
    } else {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        if (first + n < heads.d) x[b][n] = cache.one(at + n);
      }
    }
  }
}

template <int B, int N>
__device__ inline void load(float (&x)[B][N], const Heads &heads, const int (&slots)[B],
                            int first) {
  if (heads.type == kF16) {
    load_as<kF16>(x, heads, slots, first);
  } else if (heads.type == kBF16) {
    load_as<kBF16>(x, heads, slots, first);
  } else {
    load_as<kF32>(x, heads, slots, first);
  }
}

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
  static constexpr int kPairs = 16 * E;  // most pairs of columns
  static constexpr int kParts = kThreads / kPairs;
  static constexpr int kPitch = NQ + 4;  // keeps rows of scores apart in the banks
  float4 q[NQ][8 * E];                   // element 4 * (32 * (e % E / 4) + e / E) + e % 4
  float scores[ft::kSplit][kPitch];
  float2 parts[(kParts - 1) * NQ * kPairs];
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

// Elements of a query in shared memory, as E < 4 packs them: a lane's own side by side.
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

// A block of queries at one split.
template <int NQ, int E>
struct Worker {
  using R = Room<NQ, E>;
  const Args &args;
  const ft::Call &call;
  R &room;
  const int count;  // live queries
  const Heads k, v;
  int start, shared, low, high;  // of the split; keys in their slots; seen by some query
  int inner_low, inner_high;     // seen by all
  bool tail;                     // whether tree rows may have positions here

  __device__ void enter(int split) {
    start = split * ft::kSplit;
    low = inner_high = ft::kSplit;
    high = inner_low = 0;
    for (int n = 0; n < count; ++n) {
      const int a = max(0, room.spans[n].lo - start);
      const int b = min(ft::kSplit, room.spans[n].hi - start);
      low = min(low, a), high = max(high, b);
      inner_low = max(inner_low, a), inner_high = min(inner_high, b);
    }
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
      load(key, k, slots, E * lane);
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
    if (threadIdx.x < ft::kSplit) {
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

  __device__ static void weigh(float (&sums)[NQ][2], const float *p, const float (&v)[2],
                               unsigned seen) {
#pragma unroll
    for (int n = 0; n < NQ; n += 4) {
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

  // Sums of values of one part of the split, for columns 2 * pair and the next.
  __device__ void mix(float (&sums)[NQ][2], int pair, int part, int parts) {
#pragma unroll
    for (int n = 0; n < NQ; ++n) sums[n][0] = sums[n][1] = 0.0f;
    const int each = ft::kSplit / parts;
    const int from = max(low, part * each);
    const int to = min(min(high, shared), (part + 1) * each);
    // Queries past the live ones may be taken along: nothing comes of them.
    const bool all = inner_low <= from && to <= inner_high;
    constexpr int kBatch = 8;
#pragma unroll 1
    for (int key = from; key < to; key += kBatch) {
      float x[kBatch][2];
      int slots[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) slots[i] = start + min(key + i, to - 1);
      load(x, v, slots, 2 * pair);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (key + i < to) {
          if (all) {
            weigh(sums, room.scores[key + i], x[i], kAll);
          } else {
            weigh(sums, room.scores[key + i], x[i], room.seen[key + i]);
          }
        }
      }
    }
    if (!tail) return;
    for (int row = 0; row < call.rows; ++row) {
      const int key = place(row);
      if (key < 0 || key / each != part || room.heirs[row] == 0) continue;
      float x[1][2];
      const int slots[1] = {call.before + row};
      load(x, v, slots, 2 * pair);
      weigh(sums, room.scores[key], x[0], room.heirs[row]);
    }
  }
};

template <int NQ, int E>
__device__ inline void attend(const Args &args) {
  using R = Room<NQ, E>;
  __shared__ __align__(16) R room;
  ft::Call call{0, 0, args.mask, args.window};
  if (!ft::read_call(args.site, args.control, args.capacity, args.context, call)) return;
  if (args.mask == ft::kTree &&
      !ft::read_tree(args.site, args.parents, args.depths, call.rows, room.tree)) {
    return;
  }

  const int q_heads = args.kv_heads * args.group, d = args.d;
  const int queries = call.rows * args.group;
  const int blocks = (queries + NQ - 1) / NQ;
  const int first_split = call.first_split(), end_split = call.end_split();
  // Splits of an item.
  const long long needed = (long long)(end_split - first_split) * call.rows * q_heads;
  const int length = args.whole ? end_split : needed <= args.records ? 1 : ft::kChunk;
  const int first_run = args.whole ? 0 : first_split / length;
  const int runs = (end_split + length - 1) / length - first_run;
  const long long items = (long long)runs * args.kv_heads * blocks;

  // Which columns, and which part of a split, are this thread's.
  const int pairs = max(32, ((d + 1) / 2 + 31) / 32 * 32);
  const int parts = kThreads / pairs;
  const int pair = threadIdx.x % pairs, part = threadIdx.x / pairs;
  const bool mixes = part < parts && 2 * pair < d;
  const bool folds = part == 0 && 2 * pair < d;
  const int columns = min(2, d - 2 * pair);

  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    int block = static_cast<int>(item % blocks);
    // The last rows see most: they go first.
    if (args.whole) block = blocks - 1 - block;
    const int head = static_cast<int>(item / blocks % args.kv_heads);
    const int run = first_run + static_cast<int>(item / blocks / args.kv_heads);
    const int first = block * NQ, count = min(NQ, queries - first);
    __syncthreads();
    for (int i = threadIdx.x; i < NQ * 32 * E; i += kThreads) {
      const int n = i / (32 * E), e = i % (32 * E);
      const int row = (first + n) / args.group, one = (first + n) % args.group;
      float x = 0.0f;
      if (n < count && e < d) {
        const size_t h = size_t(row) * q_heads + head * args.group + one;
        x = args.q[h * args.q_stride + e];
      }
      reinterpret_cast<float *>(room.q[n])[place_of<E>(e)] = x;
    }
    if (threadIdx.x < NQ) {
      const int n = threadIdx.x, row = (first + n) / args.group;
      room.started[n] = room.begun[n] = false;
      room.paths[n] = 0;
      room.queries[n] = row * q_heads + head * args.group + (first + n) % args.group;
      if (n < count) {
        const bool tree = call.mask == ft::kTree;
        room.spans[n] = call.span(row, tree ? room.tree.depths[row] : 0);
        if (tree) room.paths[n] = ft::path_to(room.tree, row);
      }
    }
    __syncthreads();
    if (call.mask == ft::kTree && threadIdx.x < call.rows) {
      unsigned heirs = 0;
      for (int n = 0; n < count; ++n) {
        heirs |= unsigned(room.paths[n] >> threadIdx.x & 1) << n;
      }
      room.heirs[threadIdx.x] = static_cast<unsigned short>(heirs);
    }
    int seen_from = room.spans[0].lo, seen_to = room.spans[0].hi;
    for (int n = 1; n < count; ++n) {
      seen_from = min(seen_from, room.spans[n].lo);
      seen_to = max(seen_to, room.spans[n].hi);
    }
    // Where a query's part goes, or what of it was folded, and where its output.
    const long long records = args.whole ? (long long)blockIdx.x * NQ
                                         : (long long)(run - first_run) * call.rows * q_heads;
    auto record = [&](int n) { return records + (args.whole ? n : room.queries[n]); };
    auto partial = [&](int n) { return args.scratch + record(n) * d + 2 * pair; };
    auto result = [&](int n) { return args.out + (long long)room.queries[n] * d + 2 * pair; };
    auto heads = [&](const void *memory, int type, int wide) {
      const size_t offset = size_t(head) * d * (type == kF32 ? 4 : 2);
      return Heads{static_cast<const char *>(memory) + offset, type, wide != 0, d,
                   args.kv_heads * d};
    };
    Worker<NQ, E> worker{args, call, room, count, heads(args.k, args.k_type, args.k_wide),
                         heads(args.v, args.v_type, args.v_wide)};
    const int split_end = min((run + 1) * length, (seen_to + ft::kSplit - 1) / ft::kSplit);
    for (int split = max(run * length, seen_from / ft::kSplit); split < split_end; ++split) {
      worker.enter(split);
      worker.score();
      __syncthreads();
      worker.softmax();
      __syncthreads();
      float sums[NQ][2];
      if (mixes) worker.mix(sums, pair, part, parts);
      if (mixes && part > 0) {
#pragma unroll
        for (int n = 0; n < NQ; ++n) {
          room.parts[((part - 1) * NQ + n) * pairs + pair] =
              make_float2(sums[n][0], sums[n][1]);
        }
      }
      __syncthreads();
      if (folds) {
#pragma unroll
        for (int n = 0; n < NQ; ++n) {
          if (n < count && room.how[n] != kSkip) {
            for (int other = 0; other < parts - 1; ++other) {
              const float2 x = room.parts[(other * NQ + n) * pairs + pair];
              sums[n][0] = __fadd_rn(sums[n][0], x.x);
              sums[n][1] = __fadd_rn(sums[n][1], x.y);
            }
            float *to = partial(n);
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              if (c < columns) {
                to[c] = room.how[n] == kCopy ? sums[n][c]
                                             : ft::fold(to[c], sums[n][c], room.factors[n]);
              }
            }
          }
        }
      }
      const bool chunk_ends = split % ft::kChunk == ft::kChunk - 1 || split + 1 == split_end;
      if (args.whole && chunk_ends) {
        __syncthreads();
        if (threadIdx.x < count) {
          const int n = threadIdx.x;
          room.how[n] = kSkip;
          if (room.started[n]) worker.fold_into(n, room.total, room.begun, room.chunk[n]);
          room.started[n] = false;
        }
        __syncthreads();
        for (int n = 0; folds && n < count; ++n) {
          const float *from = partial(n);
          float *to = result(n);
          for (int c = 0; c < columns && room.how[n] != kSkip; ++c) {
            to[c] = room.how[n] == kCopy ? from[c] : ft::fold(to[c], from[c], room.factors[n]);
          }
        }
      }
    }
    if (args.whole) {
      for (int n = 0; folds && n < count; ++n) {
        const float factor = 1.0f / room.total[n].sum;
        float *to = result(n);
        for (int c = 0; c < columns; ++c) to[c] = __fmul_rn(to[c], factor);
      }
    } else if (threadIdx.x < count && room.started[threadIdx.x]) {
      float2 *stats = reinterpret_cast<float2 *>(args.scratch + args.records * d +
                                                 (args.records * d & 1));
      const ft::Stats &chunk = room.chunk[threadIdx.x];
      stats[record(threadIdx.x)] = make_float2(chunk.max, chunk.sum);
    }
  }
}

constexpr int kLanes = 32;   // columns of a block of attention_combine
constexpr int kSpread = 16;  // chunks at a time, one for each warp

// A chunk of one query's column.
struct Part {
  ft::Stats stats;
  float value;
};

}  // namespace

#define FT_ATTENTION(NQ, E)                                                                   \
  extern "C" __global__ void __launch_bounds__(kThreads, 2) attention_##NQ##_##E(             \
      ft::Site site, const int *control, const int *parents, const int *depths,               \
      const float *q, const void *k, const void *v, float *out, float *scratch, int k_type,   \
      int v_type, int k_wide, int v_wide, int mask, int window, int capacity, int context,    \
      int kv_heads, int group, int q_stride, int d, float scale, int whole,                   \
      long long records) {                                                                    \
    attend<NQ, E>(Args{site, control, parents, depths, q, k, v, out, scratch, k_type, v_type, \
                       k_wide, v_wide, mask, window, capacity, context, kv_heads, group,      \
                       q_stride, d, scale, whole, records});                                  \
  }
FT_ATTENTION(8, 2)
FT_ATTENTION(8, 4)
FT_ATTENTION(8, 8)
FT_ATTENTION(16, 2)
FT_ATTENTION(16, 4)
FT_ATTENTION(16, 8)

// Folds what the items left: grid (M Hq, d / 32), blocks of 32 x 16. A warp folds the
// splits of a chunk, the first warp the chunks, 16 of them at a time.
extern "C" __global__ void __launch_bounds__(kLanes *kSpread)
    attention_combine(ft::Site site, const int *control, const int *parents, const int *depths,
                      const float *scratch, float *out, int mask, int window, int capacity,
                      int context, int q_heads, int d, long long records) {
  __shared__ ft::Tree tree;
  __shared__ float values[kSpread][kLanes];
  __shared__ ft::Stats stats_of[kSpread];
  ft::Call call{0, 0, mask, window};
  if (!ft::read_call(site, control, capacity, context, call)) return;
  if (mask == ft::kTree && !ft::read_tree(site, parents, depths, call.rows, tree)) return;
  const int row = blockIdx.x / q_heads;
  if (row >= call.rows) return;
  const ft::Span span = call.span(row, mask == ft::kTree ? tree.depths[row] : 0);
  const int first_split = call.first_split();
  const long long needed = (long long)(call.end_split() - first_split) * call.rows * q_heads;
  const bool single = needed <= records;
  const int first_run = single ? first_split : first_split / ft::kChunk;
  const int low = span.lo / ft::kSplit, high = (span.hi + ft::kSplit - 1) / ft::kSplit;

  const int column = blockIdx.y * kLanes + threadIdx.x;
  const bool live = column < d;
  const float2 *const all_stats =
      reinterpret_cast<const float2 *>(scratch + records * d + (records * d & 1));
  auto part = [&](int run) {
    const size_t at = size_t(run - first_run) * call.rows * q_heads + blockIdx.x;
    const float2 stats = all_stats[at];
    return Part{{stats.x, stats.y}, live ? scratch[at * d + column] : 0.0f};
  };
  auto fold = [](Part &so_far, const Part &later) {
    const ft::Factors f = ft::fold(so_far.stats, later.stats);
    so_far.value = ft::fold(so_far.value, later.value, f);
  };

  Part total{};
  const int end = (high + ft::kChunk - 1) / ft::kChunk;
  for (int base = low / ft::kChunk; base < end; base += kSpread) {
    const int chunk = base + threadIdx.y;
    if (chunk < end) {
      Part so_far;
      if (single) {
        const int from = max(low, chunk * ft::kChunk);
        const int to = min(high, (chunk + 1) * ft::kChunk);
        Part parts[ft::kChunk];
#pragma unroll
        for (int i = 0; i < ft::kChunk; ++i) {
          if (from + i < to) parts[i] = part(from + i);
        }
        so_far = parts[0];
#pragma unroll
        for (int i = 1; i < ft::kChunk; ++i) {
          if (from + i < to) fold(so_far, parts[i]);
        }
      } else {
        so_far = part(chunk);
      }
      values[threadIdx.y][threadIdx.x] = so_far.value;
      if (threadIdx.x == 0) stats_of[threadIdx.y] = so_far.stats;
    }
    __syncthreads();
    if (threadIdx.y == 0) {
      for (int i = 0; i < min(kSpread, end - base); ++i) {
        const Part later{stats_of[i], values[i][threadIdx.x]};
        if (base + i == low / ft::kChunk) {
          total = later;
        } else {
          fold(total, later);
        }
      }
    }
    __syncthreads();
  }
  if (threadIdx.y == 0 && live) {
    out[size_t(blockIdx.x) * d + column] = __fmul_rn(total.value, 1.0f / total.stats.sum);
  }
}
