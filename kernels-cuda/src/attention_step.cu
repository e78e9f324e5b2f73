// Attention of a step's rows on tensor cores: causal, over a token tree, or of a block; a
// cache of binary16 or bfloat16, heads of 64, 128 or 256 values.
//
// Layouts: as in attention.cu. q [M, Hq, q_stride] F32; k, v [context, Hkv, d]; out
// [M, Hq, d] F32. Query head h reads key-value head h / group.
//
// Which keys are summed how depends on a row's position p alone. Its tail is the 64 keys up
// to and including its own (in a block without an order, also those after it): as a tree
// has 64 levels, keys before the tail are committed and lie in the slots of their positions
// in whatever call the row is computed. They are taken in splits of 128 at absolute
// multiples, on tensor cores. Keys of the tail lie in other slots when they are a tree's
// rows than once they are committed; tensor cores add 16 at a time, so which lie together
// would show. Scores are sums of one key's elements: those come from tensor cores here, too.
// Values are added by position, one at a time, as floats.
//
// Order. A score: see `score`. A split's sum of probabilities: keys g and g + 8 of 16, a
// butterfly over g, groups of 16 ascending; of values: groups of 16 ascending, of each the
// low parts first. A tail's sum of probabilities: as in attention.cu, by position from the
// tail's start; of values: ascending. Splits are folded in ascending order within a chunk
// (16 of them at an absolute multiple), then chunks, then the tail.
//
// Launch: as many blocks of 256 threads as the card holds take items. An item is the tail
// of up to 8 queries (rows and heads of one key-value head, counted together), or up to
// 8 TILES queries at a split, or at a chunk of splits when scratch memory cannot hold what
// all splits leave. `attention_join` folds what they leave. Queries are columns of all
// products, so that each has the same bits among any others.
//
// Error: as in attention_prefill.cu, of splits.
//
// Bound: memory for some tens of queries to a key-value head, else tensor cores, 8 d for
// each query and key.

#include "attention_tail.cuh"

namespace {

using namespace ft::attention;

enum How : int { kSkip = 0, kCopy = 1, kFold = 2 };

template <int D, int TILES>
struct SplitRoom {
  static constexpr int kMost = 8 * TILES;
  uint4 high[D / 32 * TILES * 32], low[D / 32 * TILES * 32];
  // Probabilities as operands: of each group of keys and 8 queries, the parts of a lane.
  uint4 parts[kGroups * TILES * 32];
  float tops[kGroups][kMost], sums[kGroups][kMost];
  Queries<TILES> queries;
  ft::Stats chunk[kMost];
  ft::Factors factors[kMost];
  int how[kMost];
  long long record[kMost];
};

// What an item's splits have in common: in shared memory, since registers have other things
// to hold.
struct Limits {
  int from, to;    // slots that some query sees
  int first, end;  // of the splits
  int head, count;
};

template <int D, int TILES, bool kBfloatK, bool kBfloatV>
__device__ inline void splits(const Args &args, const ft::Call &call, const ft::Tree &tree,
                              SplitRoom<D, TILES> &room, int head, int first, int count,
                              int first_split, int end_split, long long base) {
  constexpr int kMost = 8 * TILES;
  // Groups of 32 elements of a key, and of 16 keys' values, under way; with many queries
  // registers are few.
  constexpr int kPart = TILES > 3 && D > 64 ? D / 64 : D / 32;
  constexpr int kAhead = TILES > 3 && D > 128 ? 2 : 4;
  // Warps that share a slice of columns take every kShare-th eight queries of them.
  constexpr int kSlices = D / kSlice, kShare = kWarps / kSlices;
  constexpr int kTiles = (TILES + kShare - 1) / kShare;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int q_heads = args.kv_heads * args.group;
  __shared__ Limits limits;
  if (threadIdx.x < kMost) {
    const int n = min(int(threadIdx.x), count - 1), row = (first + n) / args.group;
    room.queries.number[threadIdx.x] = row * q_heads + head * args.group + (first + n) % args.group;
    const int depth = call.mask == ft::kTree ? tree.depths[row] : 0;
    room.queries.reach[threadIdx.x] = reach(call, row, depth);
    room.record[threadIdx.x] = base + room.queries.number[threadIdx.x];
    room.chunk[threadIdx.x] = ft::Stats{-INFINITY, -1.0f};
  }
  __syncthreads();
  int from = room.queries.reach[0].lo, to = room.queries.reach[0].tail;
#pragma unroll 1
  for (int n = args.group; n < count + args.group - 1; n += args.group) {
    const Reach &r = room.queries.reach[min(n, count - 1)];
    from = min(from, r.lo), to = max(to, r.tail);
  }
  first_split = max(first_split, from / ft::kSplit);
  end_split = min(end_split, (to + ft::kSplit - 1) / ft::kSplit);
  if (first_split >= end_split) return;
  if (threadIdx.x == 0) {
    limits = Limits{from, to, first_split * ft::kSplit, end_split * ft::kSplit, head, count};
  }
  __syncthreads();

  const int slot_bytes = 2 * args.kv_heads * D;
  auto k_head = [&] { return args.k + 2 * limits.head * D; };
  const int slice = warp % kSlices, share = warp / kSlices;
  auto v_head = [&] { return args.v + 2 * (limits.head * D + slice * kSlice + 4 * g); };
#pragma unroll 1
  for (int start = limits.first; start < limits.end; start += ft::kSplit) {
    uint4 key[kPart][2];
    load_keys<0>(key, k_head(), slot_bytes, start + 16 * warp, limits.from, limits.to);
    if (start == limits.first) {
      load_queries<D, TILES, kBfloatK>(args, room.queries, limits.count, room.high, room.low);
      __syncthreads();
    }
    float scores[TILES][4];
    score<TILES, kBfloatK, 0>(scores, key, room.high, room.low);
    if constexpr (kPart < D / 32) {
      load_keys<kPart>(key, k_head(), slot_bytes, start + 16 * warp, limits.from, limits.to);
      score<TILES, kBfloatK, kPart>(scores, key, room.high, room.low);
    }
    uint2 value[kAhead][4];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      load_values(value[i], v_head(), slot_bytes, start + 16 * i + 2 * t, limits.to);
    }
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      float top[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int query = 8 * n + 2 * t + c, at = start + 16 * warp + g;
        const int lo = room.queries.reach[query].lo, end = room.queries.reach[query].tail;
        const float unit = room.queries.unit[query];
        float &x = scores[n][c], &y = scores[n][c + 2];
        x = at >= lo && at < end ? __fmul_rn(x, unit) : -INFINITY;
        y = at + 8 >= lo && at + 8 < end ? __fmul_rn(y, unit) : -INFINITY;
        top[c] = fmaxf(x, y);
      }
#pragma unroll
      for (int step = 4; step < 32; step <<= 1) {
        top[0] = fmaxf(top[0], __shfl_xor_sync(kAll, top[0], step));
        top[1] = fmaxf(top[1], __shfl_xor_sync(kAll, top[1], step));
      }
      if (g == 0) {
        *reinterpret_cast<float2 *>(&room.tops[warp][8 * n + 2 * t]) = make_float2(top[0], top[1]);
      }
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      float2 top = make_float2(-INFINITY, -INFINITY);
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        const float2 x = *reinterpret_cast<const float2 *>(&room.tops[i][8 * n + 2 * t]);
        top.x = fmaxf(top.x, x.x), top.y = fmaxf(top.y, x.y);
      }
      // A query that sees nothing of the split has probabilities of 0.
      const float zero[2] = {top.x == -INFINITY ? 0.0f : top.x - kRaise,
                             top.y == -INFINITY ? 0.0f : top.y - kRaise};
      float sum[2];
#pragma unroll
      for (int c = 0; c < 4; ++c) scores[n][c] = exp2_fast(scores[n][c] - zero[c % 2]);
      sum[0] = __fadd_rn(scores[n][0], scores[n][2]);
      sum[1] = __fadd_rn(scores[n][1], scores[n][3]);
#pragma unroll
      for (int step = 4; step < 32; step <<= 1) {
        sum[0] = __fadd_rn(sum[0], __shfl_xor_sync(kAll, sum[0], step));
        sum[1] = __fadd_rn(sum[1], __shfl_xor_sync(kAll, sum[1], step));
      }
      if (g == 0) {
        *reinterpret_cast<float2 *>(&room.sums[warp][8 * n + 2 * t]) = make_float2(sum[0], sum[1]);
      }
      // Lanes of keys g and g + 1 trade, and each has both keys of one query.
      const bool odd = g & 1;
      const float low = __shfl_xor_sync(kAll, odd ? scores[n][0] : scores[n][1], 4);
      const float high = __shfl_xor_sync(kAll, odd ? scores[n][2] : scores[n][3], 4);
      uint4 parts;
      two_parts<kBfloatV>(odd ? low : scores[n][0], odd ? scores[n][1] : low, parts.x, parts.z);
      two_parts<kBfloatV>(odd ? high : scores[n][2], odd ? scores[n][3] : high, parts.y, parts.w);
      room.parts[(warp * TILES + n) * 32 + 4 * (2 * t + odd) + g / 2] = parts;
    }
    __syncthreads();
    if (const int n = this_thread(); n < kMost) {
      float top = -INFINITY, sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        top = fmaxf(top, room.tops[i][n]);
        sum = __fadd_rn(sum, room.sums[i][n]);
      }
      const Reach r = room.queries.reach[n];
      const bool sees = n < limits.count && start < r.tail && start + ft::kSplit > r.lo;
      if (!sees) {
        room.how[n] = kSkip;
      } else if (room.chunk[n].sum < 0.0f) {
        room.chunk[n] = ft::Stats{top, sum};
        room.how[n] = kCopy;
      } else {
        room.factors[n] = join(room.chunk[n], ft::Stats{top, sum});
        room.how[n] = kFold;
      }
    }

    float sums[kTiles][2][4];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[n][i / 4][i % 4] = 0.0f;
    }
    // With fewer keys seen, the rest are zeros and change nothing.
    constexpr int kTurns = TILES > 3 && D > 128 ? 1 : kGroups / kAhead;  // at once
#pragma unroll kTurns
    for (int first_group = 0; first_group < kGroups; first_group += kAhead) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int group = first_group + i, next = group + kAhead;
        uint32_t a[2][4];
        operands(a, value[i]);
        if (next < kGroups) {
          load_values(value[i], v_head(), slot_bytes, start + 16 * next + 2 * t, limits.to);
        }
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          const int tile = n * kShare + share;
          if (kShare > 1 && tile >= TILES) break;
          const uint4 p = room.parts[(group * TILES + tile) * 32 + lane];
          ft::mma<kBfloatV>(sums[n][0], a[0], p.z, p.w);
          ft::mma<kBfloatV>(sums[n][1], a[1], p.z, p.w);
          ft::mma<kBfloatV>(sums[n][0], a[0], p.x, p.y);
          ft::mma<kBfloatV>(sums[n][1], a[1], p.x, p.y);
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int tile = n * kShare + share;
      if (kShare > 1 && tile >= TILES) break;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int query = 8 * tile + 2 * t + c, how = room.how[query];
        if (how == kSkip) continue;
        float4 x = make_float4(sums[n][0][c], sums[n][0][c + 2], sums[n][1][c], sums[n][1][c + 2]);
        float4 *at = reinterpret_cast<float4 *>(args.scratch + room.record[query] * D +
                                                slice * kSlice + 4 * g);
        if (how == kFold) {
          const ft::Factors f = room.factors[query];
          const float4 y = *at;
          x.x = ft::fold(y.x, x.x, f), x.y = ft::fold(y.y, x.y, f);
          x.z = ft::fold(y.z, x.z, f), x.w = ft::fold(y.w, x.w, f);
        }
        *at = x;
      }
    }
  }
  const int n = this_thread();
  if (n < limits.count && !(room.chunk[n].sum < 0.0f)) {
    const ft::Stats &chunk = room.chunk[n];
    const Records records(args.scratch, args.records, call.rows * q_heads, D);
    records.stats[room.record[n]] = make_float2(chunk.max, chunk.sum);
  }
}

// A call and its items, in shared memory as well.
struct Plan {
  ft::Call call;
  int queries;  // of a key-value head
  int end, length, first_run;
  int blocks, tail_blocks, tails, items;
  int item;  // what the block is at
};

template <int D, int TILES, bool kBfloatK, bool kBfloatV>
__device__ inline void step(const Args &args) {
  // Tails take long, and there are few of them: blocks with few queries of them share the time.
  constexpr int kMost = 8 * TILES, kTailTiles = 1, kTailMost = 8 * kTailTiles;
  extern __shared__ uint4 shared[];
  __shared__ ft::Tree tree;
  __shared__ Plan plan;
  // ops/attention/tensor.rs of the driver knows the same.
  static_assert(sizeof(SplitRoom<D, TILES>) == TILES * (32 * D + 5024), "");
  static_assert(sizeof(TailRoom<D, kTailTiles>) == kTailTiles * (32 * D + 4352) + 6656, "");
  {
    ft::Call call{0, 0, args.mask, args.window};
    if (!ft::read_call(args.site, args.control, args.capacity, args.context, call)) return;
    if (args.mask == ft::kTree &&
        !ft::read_tree(args.site, args.parents, args.depths, call.rows, tree)) {
      return;
    }
    if (threadIdx.x == 0) {
      Plan p{call, call.rows * args.group, end_split(call)};
      const int first_split = call.first_split();
      const long long splits = max(0, p.end - first_split);
      p.length = splits * p.queries * args.kv_heads <= args.records ? 1 : ft::kChunk;
      p.first_run = first_split / p.length;
      p.blocks = (p.queries + kMost - 1) / kMost;
      p.tail_blocks = (p.queries + kTailMost - 1) / kTailMost;
      p.tails = p.tail_blocks * args.kv_heads;
      const int runs = max(0, (p.end + p.length - 1) / p.length - p.first_run);
      p.items = p.tails + runs * args.kv_heads * p.blocks;
      p.item = blockIdx.x;
      plan = p;
    }
    __syncthreads();
  }
#pragma unroll 1
  while (plan.item < plan.items) {
    const int item = plan.item;
    if (item < plan.tails) {
      const int head = item / plan.tail_blocks, first = item % plan.tail_blocks * kTailMost;
      tail<D, kTailTiles, kBfloatK, kBfloatV>(
          args, plan.call, tree, *reinterpret_cast<TailRoom<D, kTailTiles> *>(shared), head,
          first, min(kTailMost, plan.queries - first));
    } else {
      const int number = item - plan.tails, first = number % plan.blocks * kMost;
      const int head = number / plan.blocks % args.kv_heads;
      const int run = plan.first_run + number / plan.blocks / args.kv_heads;
      splits<D, TILES, kBfloatK, kBfloatV>(
          args, plan.call, tree, *reinterpret_cast<SplitRoom<D, TILES> *>(shared), head, first,
          min(kMost, plan.queries - first), run * plan.length,
          min(plan.end, (run + 1) * plan.length),
          (long long)(run - plan.first_run) * plan.queries * args.kv_heads);
    }
    __syncthreads();
    if (threadIdx.x == 0) plan.item += gridDim.x;
    __syncthreads();
  }
}

// Blocks that a multiprocessor's shared memory has room for, of those that are wanted.
constexpr int blocks_at_once(int d, int tiles) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 800
  constexpr int kRoom = 64 << 10;
#elif __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200
  constexpr int kRoom = 100 << 10;
#else
  constexpr int kRoom = 164 << 10;
#endif
  return 2 * (tiles * (32 * d + 5024) + (2 << 10)) <= kRoom ? 2 : 1;
}

// Four columns of a part of one query.
struct Part {
  ft::Stats stats;
  float4 value;
};

__device__ inline void add(Part &so_far, const Part &later) {
  const ft::Factors f = join(so_far.stats, later.stats);
  so_far.value.x = ft::fold(so_far.value.x, later.value.x, f);
  so_far.value.y = ft::fold(so_far.value.y, later.value.y, f);
  so_far.value.z = ft::fold(so_far.value.z, later.value.z, f);
  so_far.value.w = ft::fold(so_far.value.w, later.value.w, f);
}

}  // namespace

#define FT_STEP(NAME, D, TILES, BFLOAT_K, BFLOAT_V)                                           \
  extern "C" __global__ void __launch_bounds__(kThreads, blocks_at_once(D, TILES)) NAME(      \
      ft::Site site, const int *control, const int *parents, const int *depths,               \
      const float *q, const char *k, const char *v, float *scratch, int mask, int window,     \
      int capacity, int context, int kv_heads, int group, int q_stride, float scale,          \
      long long records) {                                                                    \
    step<D, TILES, BFLOAT_K, BFLOAT_V>(Args{site, control, parents, depths, q, k, v, scratch, \
                                            mask, window, capacity, context, kv_heads, group, \
                                            q_stride, scale, records});                       \
  }
#define FT_STEPS(SUFFIX, BFLOAT_K, BFLOAT_V)                              \
  FT_STEP(attention_step_64_1##SUFFIX, 64, 1, BFLOAT_K, BFLOAT_V)         \
  FT_STEP(attention_step_64_3##SUFFIX, 64, 3, BFLOAT_K, BFLOAT_V)         \
  FT_STEP(attention_step_64_6##SUFFIX, 64, 6, BFLOAT_K, BFLOAT_V)         \
  FT_STEP(attention_step_128_1##SUFFIX, 128, 1, BFLOAT_K, BFLOAT_V)       \
  FT_STEP(attention_step_128_3##SUFFIX, 128, 3, BFLOAT_K, BFLOAT_V)       \
  FT_STEP(attention_step_128_6##SUFFIX, 128, 6, BFLOAT_K, BFLOAT_V)       \
  FT_STEP(attention_step_256_1##SUFFIX, 256, 1, BFLOAT_K, BFLOAT_V)       \
  FT_STEP(attention_step_256_3##SUFFIX, 256, 3, BFLOAT_K, BFLOAT_V)       \
  FT_STEP(attention_step_256_6##SUFFIX, 256, 6, BFLOAT_K, BFLOAT_V)
FT_STEPS(, false, false)
// Products of bfloat16 are there from sm_80 on.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
FT_STEPS(_fb_sm80, false, true)
FT_STEPS(_bf_sm80, true, false)
FT_STEPS(_bb_sm80, true, true)
#endif

// Folds what the items left: grid (M Hq, parts of the columns), blocks of at least 16 by at
// most 16 threads, 256 in all. A thread has four columns; those of one y fold the splits of
// a chunk, those of y 0 the chunks, and the tail.
// Three blocks to a multiprocessor leave 80 registers, of which records under way take 48:
// so what is wanted later waits in shared memory, and 32 bits count records (of more than
// 256 bytes each).
extern "C" __global__ void __launch_bounds__(kThreads, 3)
    attention_join(ft::Site site, const int *control, const int *parents, const int *depths,
                   float *scratch, float *out, int mask, int window, int capacity, int context,
                   int q_heads, int d, long long records) {
  constexpr int kBatch = 8;
  constexpr float kNone = -1.0f;  // the sum of what is not there yet
  __shared__ ft::Tree tree;
  __shared__ float4 values[kThreads];
  __shared__ ft::Stats stats_of[kThreads / 16];
  __shared__ Part totals[kThreads / 4], tails[kThreads / 4];
  ft::Call call{0, 0, mask, window};
  if (!ft::read_call(site, control, capacity, context, call)) return;
  if (mask == ft::kTree && !ft::read_tree(site, parents, depths, call.rows, tree)) return;
  const int row = blockIdx.x / q_heads;
  if (row >= call.rows) return;
  const Reach seen = reach(call, row, mask == ft::kTree ? tree.depths[row] : 0);
  const int queries = call.rows * q_heads, first_split = call.first_split();
  const long long needed = (long long)max(0, end_split(call) - first_split) * queries;
  const bool single = needed <= records;
  const int first_run = single ? first_split : first_split / ft::kChunk;
  const int low = seen.lo / ft::kSplit, high = (seen.tail + ft::kSplit - 1) / ft::kSplit;

  const unsigned column = blockIdx.y * blockDim.x + threadIdx.x;  // the first of four, by four
  const unsigned columns = unsigned(d) / 4, queries_before = unsigned(first_run) * queries;
  const Records all(scratch, records, queries, d);
  auto part = [&](unsigned at) {
    const float2 stats = all.stats[at];
    return Part{{stats.x, stats.y},
                reinterpret_cast<const float4 *>(scratch)[size_t(at) * columns + column]};
  };

  const int place = threadIdx.y * blockDim.x + threadIdx.x;
  if (threadIdx.y == blockDim.y - 1) tails[threadIdx.x] = part(unsigned(records) + blockIdx.x);
  if (threadIdx.y == 0) totals[threadIdx.x].stats.sum = kNone;
  // A row whose tail holds all that it sees has no splits.
  const int first = low / ft::kChunk;
  const int end = seen.tail > seen.lo ? (high + ft::kChunk - 1) / ft::kChunk : first;
  // A chunk has left a record for each split, or one.
  const int each = single ? ft::kChunk : 1;
  const int begin = single ? low : first, stop = single ? high : end;
  for (int base = first; base < end; base += blockDim.y) {
    const int chunk = base + threadIdx.y;
    if (chunk < end) {
      const int from = max(begin, chunk * each), to = min(stop, (chunk + 1) * each);
      unsigned at = unsigned(from) * queries + (blockIdx.x - queries_before);
      Part so_far{{0.0f, kNone}};
#pragma unroll 1
      for (int left = to - from; left > 0; left -= kBatch, at += kBatch * queries) {
        // Past the last it is loaded again, and not added: all loads are under way at once.
        Part parts[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) parts[i] = part(at + min(i, left - 1) * queries);
        if (so_far.stats.sum < 0.0f) {
          so_far = parts[0];
        } else {
          add(so_far, parts[0]);
        }
#pragma unroll
        for (int i = 1; i < kBatch; ++i) {
          if (i < left) add(so_far, parts[i]);
        }
      }
      values[place] = so_far.value;
      if (threadIdx.x == 0) stats_of[threadIdx.y] = so_far.stats;
    }
    __syncthreads();
    if (threadIdx.y == 0) {
      Part total = totals[threadIdx.x];
      // As many as blockDim.y, which would take a register.
#pragma unroll 2
      for (int i = 0; i < min(int(kThreads / blockDim.x), end - base); ++i) {
        const Part later{stats_of[i], values[i * blockDim.x + threadIdx.x]};
        if (total.stats.sum < 0.0f) {
          total = later;
        } else {
          add(total, later);
        }
      }
      totals[threadIdx.x] = total;
    }
    __syncthreads();
  }
  __syncthreads();
  if (threadIdx.y != 0) return;
  Part total = totals[threadIdx.x];
  const Part tail = tails[threadIdx.x];
  if (total.stats.sum < 0.0f) {
    total = tail;
  } else {
    add(total, tail);
  }
  const float factor = 1.0f / total.stats.sum;
  reinterpret_cast<float4 *>(out)[size_t(blockIdx.x) * columns + column] =
      make_float4(__fmul_rn(total.value.x, factor), __fmul_rn(total.value.y, factor),
                  __fmul_rn(total.value.z, factor), __fmul_rn(total.value.w, factor));
}
