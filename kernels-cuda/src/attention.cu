// Attention with grouped queries over the cache: causal, over a token tree, of a block. For
// what attention_step.cu and attention_prefill.cu do not take: caches of floats, heads of
// other sizes, caches that cannot be read 16 bytes at once.
//
// Layouts: q [M, Hq, q_stride] F32; k, v [context, Hkv, d] F32, F16 or BF16, of types of
// their own; out [M, Hq, d] F32. Query head h reads key-value head h / group.
//
// A split is 128 keys at an absolute multiple of 128 positions. Each query gets of each
// split it sees a maximum, a sum and a sum of values. These are folded in ascending order
// within a chunk (16 splits at an absolute multiple), then the chunks in ascending order:
// a tree of sums that depends on the row's own positions alone, wherever it is computed.
//
// Launch: the grid of `attention_*` is as large as the card holds, or as there is work for
// at most. Its blocks of 256 threads take items: up to NQ queries (rows and heads of one
// key-value head, counted together) and one split, or, when the scratch memory cannot hold
// what all splits leave, one chunk. What an item leaves goes to scratch memory, and
// `attention_combine` folds it. In prefill an item is all splits of its queries, from the
// first to the last, folded as it goes, and there is no second kernel.
//
// Within a split: a warp takes 16 keys, 4 at a time in registers, E elements of each
// in a lane. A product's order: elements of a lane, then a butterfly of 5 steps. A sum of
// probabilities: four keys of a lane in pairs, then a butterfly. A sum of values: keys
// ascending in each of 2 to 8 equal parts of the split (a thread has two columns and one
// part), then parts ascending. A key that a query does not see takes no part.
//
// Tree: the key at position `committed + t` of a row lies in the slot of its ancestor at
// depth t. Slots after the committed ones are gone through in row order, each under the
// position of its depth, by those queries that descend from it: along a path rows ascend,
// so this is the order of positions.
//
// Bound: memory (the keys and values once for NQ queries) for one row of a model with few
// query heads to a key-value head, else multiply-adds, 4 d for each query and key.

#include "attention_split.cuh"

namespace {

using namespace ft::attention;

// Folds a later part of a query's values, of one column or two, into what is in memory.
template <int NQ, int E>
__device__ inline void add(const Room<NQ, E> &room, int n, float *to, float first, bool both,
                           float second) {
  const int how = room.how[n];
  if (how == kSkip) return;
  if (how == kFold) {
    const ft::Factors f = room.factors[n];
    first = ft::fold(to[0], first, f);
    if (both) second = ft::fold(to[1], second, f);
  }
  to[0] = first;
  if (both) to[1] = second;
}

template <int NQ, int E, bool WIDE>
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
  const int first_split = call.first_split(), end_split = call.end_split();
  // Splits of an item.
  const long long needed = (long long)(end_split - first_split) * call.rows * q_heads;
  const int length = args.whole ? end_split : needed <= args.records ? 1 : ft::kChunk;
  const int first_run = args.whole ? 0 : first_split / length;
  const int runs = (end_split + length - 1) / length - first_run;
  // Queries of an item: fewer while that brings idle blocks to work.
  int most = NQ;
  while (most > 4 && runs * args.kv_heads * ((queries + most - 1) / most) <= gridDim.x / 2) {
    most /= 2;
  }
  const int blocks = (queries + most - 1) / most;
  const int items = runs * args.kv_heads * blocks;

  // Which columns, and which part of a split, are this thread's.
  const int pair = threadIdx.x % R::kPairs, part = threadIdx.x / R::kPairs;
  const bool mixes = 2 * pair < d;
  const bool folds = mixes && part == 0;
  const bool both = 2 * pair + 1 < d;

  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    int block = item % blocks;
    // The last rows see most: they go first.
    if (args.whole) block = blocks - 1 - block;
    const int head = item / blocks % args.kv_heads;
    const int run = first_run + item / blocks / args.kv_heads;
    const int first = block * most, count = min(most, queries - first);
    __syncthreads();
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
    load_queries<NQ, E>(args, room, count);
    if (call.mask == ft::kTree && threadIdx.x < call.rows) {
      unsigned heirs = 0;
      for (int n = 0; n < count; ++n) {
        heirs |= unsigned(room.paths[n] >> threadIdx.x & 1) << n;
      }
      room.heirs[threadIdx.x] = static_cast<unsigned short>(heirs);
    }
    __syncthreads();
    int seen_from = room.spans[0].lo, seen_to = room.spans[0].hi;
    int all_from = seen_from, all_to = seen_to;
#pragma unroll 1
    for (int n = 1; n < count; ++n) {
      const ft::Span span = room.spans[n];
      seen_from = min(seen_from, span.lo), all_from = max(all_from, span.lo);
      seen_to = max(seen_to, span.hi), all_to = min(all_to, span.hi);
    }
    // Where a query's part goes, or what of it was folded, and where its output.
    const long long records = args.whole ? (long long)blockIdx.x * NQ
                                         : (long long)(run - first_run) * call.rows * q_heads;
    auto record = [&](int n) { return records + (args.whole ? n : room.queries[n]); };
    auto partial = [&](int n) { return args.scratch + record(n) * d + 2 * pair; };
    auto result = [&](int n) { return args.out + (long long)room.queries[n] * d + 2 * pair; };
    auto heads = [&](const void *memory, int type) {
      const size_t offset = size_t(head) * d * (type == kF32 ? 4 : 2);
      return Heads{static_cast<const char *>(memory) + offset, type, d, args.kv_heads * d};
    };
    Worker<NQ, E, WIDE> worker{args, call, room, count, heads(args.k, args.k_type),
                               heads(args.v, args.v_type), seen_from, seen_to, all_from, all_to};
    const int split_end = min((run + 1) * length, (seen_to + ft::kSplit - 1) / ft::kSplit);
    for (int split = max(run * length, seen_from / ft::kSplit); split < split_end; ++split) {
      worker.enter(split);
      if (worker.low < min(worker.high, worker.shared)) {
        const int from = worker.start + worker.low;
        const int to = worker.start + min(worker.high, worker.shared);
        expect(worker.k, from, to);
        expect(worker.v, from, to);
      }
      worker.score();
      __syncthreads();
      worker.softmax();
      __syncthreads();
      float sums[NQ][2];
      if (mixes) worker.mix(sums, pair, part);
      if (mixes && part > 0) {
#pragma unroll
        for (int n = 0; n < NQ; ++n) {
          room.parts[part - 1][n][pair] = make_float2(sums[n][0], sums[n][1]);
        }
      }
      __syncthreads();
      if (folds) {
#pragma unroll 1
        for (int other = 0; other < R::kParts - 1; ++other) {
#pragma unroll
          for (int n = 0; n < NQ; ++n) {
            const float2 x = room.parts[other][n][pair];
            sums[n][0] = __fadd_rn(sums[n][0], x.x);
            sums[n][1] = __fadd_rn(sums[n][1], x.y);
          }
        }
        // Back, so that a short loop can go through them.
#pragma unroll
        for (int n = 0; n < NQ; ++n) {
          room.parts[0][n][pair] = make_float2(sums[n][0], sums[n][1]);
        }
#pragma unroll 4
        for (int n = 0; n < count; ++n) {
          const float2 x = room.parts[0][n][pair];
          add(room, n, partial(n), x.x, both, x.y);
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
#pragma unroll 1
        for (int n = 0; folds && n < count; ++n) {
          const float *from = partial(n);
          add(room, n, result(n), from[0], both, both ? from[1] : 0.0f);
        }
      }
    }
    if (args.whole) {
#pragma unroll 1
      for (int n = 0; folds && n < count; ++n) {
        const float factor = 1.0f / room.total[n].sum;
        float *to = result(n);
        to[0] = __fmul_rn(to[0], factor);
        if (both) to[1] = __fmul_rn(to[1], factor);
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

#define FT_ATTENTION(NAME, NQ, E, WIDE)                                                       \
  extern "C" __global__ void __launch_bounds__(kThreads, 2) NAME(                             \
      ft::Site site, const int *control, const int *parents, const int *depths,               \
      const float *q, const void *k, const void *v, float *out, float *scratch, int k_type,   \
      int v_type, int mask, int window, int capacity, int context, int kv_heads, int group,   \
      int q_stride, int d, float scale, int whole, long long records) {                       \
    attend<NQ, E, WIDE>(Args{site, control, parents, depths, q, k, v, out, scratch, k_type,   \
                             v_type, mask, window, capacity, context, kv_heads, group,        \
                             q_stride, d, scale, whole, records});                            \
  }
FT_ATTENTION(attention_8_2, 8, 2, true)
FT_ATTENTION(attention_8_4, 8, 4, true)
FT_ATTENTION(attention_8_8, 8, 8, true)
FT_ATTENTION(attention_16_2, 16, 2, true)
FT_ATTENTION(attention_16_4, 16, 4, true)
FT_ATTENTION(attention_16_8, 16, 8, true)
// For caches whose values cannot be read several at once.
FT_ATTENTION(attention_any, 16, 8, false)

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
