// The keys next to a block of queries, in a step on tensor cores: scores by products of
// whole blocks in slot order, probabilities and sums of values by position. What is
// computed, and in which order, is told in attention_step.cu.
#pragma once

#include "attention_step.cuh"

namespace ft::attention {

template <int D, int TILES>
struct TailRoom {
  static constexpr int kMost = 8 * TILES;
  static constexpr int kPitch = kMost + 4;
  uint4 high[D / 32 * TILES * 32], low[D / 32 * TILES * 32];
  float scores[ft::kSplit][kPitch];  // by slot, then probabilities
  float ordered[kWarps][ft::kSplit];
  unsigned seen[ft::kSplit];         // queries that see a slot
  ft::Rowset paths[kMost];
  Queries<TILES> queries;
};

template <int N>
__device__ inline void take(float (&x)[N], const float *from) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float4 y = *reinterpret_cast<const float4 *>(from + i);
      x[i] = y.x, x[i + 1] = y.y, x[i + 2] = y.z, x[i + 3] = y.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = from[i];
  }
}

// Up to 8 TILES queries of a head, those from `first` on.
template <int D, int TILES, bool kBfloatK, bool kBfloatV>
__device__ inline void tail(const Args &args, const ft::Call &call, const ft::Tree &tree,
                            TailRoom<D, TILES> &room, int head, int first, int count) {
  constexpr int kMost = 8 * TILES;
  const int thread = this_thread(), warp = thread / 32, lane = thread % 32;
  const int g = lane / 4, t = lane % 4;
  const int q_heads = args.kv_heads * args.group;
  const bool is_tree = call.mask == ft::kTree;
  if (thread < kMost) {
    const int n = min(int(thread), count - 1), row = (first + n) / args.group;
    room.queries.number[thread] = row * q_heads + head * args.group + (first + n) % args.group;
    room.queries.reach[thread] = reach(call, row, is_tree ? tree.depths[row] : 0);
    room.paths[thread] = is_tree ? ft::path_to(tree, row) : 0;
  }
  __syncthreads();
  // Slots that the queries may see: at most kTail - 1 committed ones, and those of rows.
  int from = room.queries.reach[0].tail, to = room.queries.reach[0].hi;
#pragma unroll 1
  for (int n = args.group; n < count + args.group - 1; n += args.group) {
    const Reach &r = room.queries.reach[min(n, count - 1)];
    from = min(from, r.tail), to = max(to, r.hi);
  }
  if (is_tree) to = call.before + call.rows;
  const int slots = min(to - from, ft::kSplit);

  const int slot_bytes = 2 * args.kv_heads * D;
  const char *const k_head = args.k + 2 * head * D, *const v_head = args.v + 2 * head * D;
  uint4 key[D / 32][2];
  load_keys<0>(key, k_head, slot_bytes, from + 16 * warp, from, to);
  {
    constexpr int kLines = (2 * D + 127) / 128;
#pragma unroll 1
    for (int i = thread; i < slots * kLines; i += kThreads) {
      const char *line = v_head + (long long)(from + i / kLines) * slot_bytes + i % kLines * 128;
      asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
    }
  }
  load_queries<D, TILES, kBfloatK>(args, room.queries, count, room.high, room.low);
  if (thread < ft::kSplit) {
    const int slot = from + thread, row = slot - call.before;
    unsigned seen = 0;
    if (slot < to) {
      const bool own = is_tree && row >= 0;
      const int position = own ? call.before + tree.depths[row] : slot;
#pragma unroll 1
      for (int n = 0; n < count; ++n) {
        const Reach &r = room.queries.reach[n];
        const bool sees = position >= r.tail && position < r.hi &&
                          (!own || (room.paths[n] >> row & 1));
        seen |= unsigned(sees) << n;
      }
    }
    room.seen[thread] = seen;
  }
  __syncthreads();
  {
    float scores[TILES][4];
    score<TILES, kBfloatK, 0>(scores, key, room.high, room.low);
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int query = 8 * n + 2 * t + c % 2;
        const float x = __fmul_rn(scores[n][c], room.queries.unit[query]);
        room.scores[16 * warp + g + 8 * (c / 2)][query] = x;
      }
    }
  }
  __syncthreads();

  // Probabilities, a query for each warp at a time.
  const Records records(args.scratch, args.records, call.rows * q_heads, D);
  for (int n = warp; n < count; n += kWarps) {
    const Reach r = room.queries.reach[n];
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < ft::kSplit / 32; ++i) {
      const int slot = lane + 32 * i;
      if (slot < slots && (room.seen[slot] >> n & 1)) top = fmaxf(top, room.scores[slot][n]);
      room.ordered[warp][slot] = 0.0f;
    }
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) {
      top = fmaxf(top, __shfl_xor_sync(kAll, top, step));
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < ft::kSplit / 32; ++i) {
      const int slot = lane + 32 * i, row = from + slot - call.before;
      if (slot < slots && (room.seen[slot] >> n & 1)) {
        const float p = exp2_fast(room.scores[slot][n] - (top - kRaise));
        const int position = is_tree && row >= 0 ? call.before + tree.depths[row] : from + slot;
        room.scores[slot][n] = p;
        room.ordered[warp][position - r.tail] = p;
      }
    }
    __syncwarp();
    float x[ft::kSplit / 32];
#pragma unroll
    for (int i = 0; i < ft::kSplit / 32; ++i) x[i] = room.ordered[warp][lane + 32 * i];
    float sum = __fadd_rn(__fadd_rn(x[0], x[1]), __fadd_rn(x[2], x[3]));
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) {
      sum = __fadd_rn(sum, __shfl_xor_sync(kAll, sum, step));
    }
    if (lane == 0) {
      records.stats[args.records + room.queries.number[n]] = make_float2(top, sum);
    }
    __syncwarp();
  }
  __syncthreads();

  // Sums of values: two columns of some queries in a thread, slots ascending.
  constexpr int kPairs = D / 2, kParts = kThreads / kPairs, kEach = kMost / kParts;
  constexpr int kBatch = 8;
  const int pair = thread % kPairs, mine = thread / kPairs * kEach;
  if (mine >= count) return;
  const unsigned every = (kEach < 32 ? (1u << kEach) - 1 : ~0u) &
                         ((count - mine < 32 ? 1u << (count - mine) : 0u) - 1);
  float sums[kEach][2];
#pragma unroll
  for (int n = 0; n < kEach; ++n) sums[n][0] = sums[n][1] = 0.0f;
  const char *at = v_head + (long long)from * slot_bytes + 4 * pair;
#pragma unroll 1
  for (int slot = 0; slot < slots; slot += kBatch) {
    unsigned words[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int other = min(slot + i, slots - 1);
      words[i] = *reinterpret_cast<const unsigned *>(at + (long long)other * slot_bytes);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      // Nobody sees what is past the last slot.
      const unsigned seen = room.seen[slot + i] >> mine & every;
      using Cache = Cache16<kBfloatV ? kBF16 : kF16>;
      const float x = Cache::value(words[i] & 0xffff), y = Cache::value(words[i] >> 16);
      float p[kEach];
      take(p, &room.scores[slot + i][mine]);
      // Queries past the last may be taken along: nothing comes of them.
      if (seen == every) {
#pragma unroll
        for (int n = 0; n < kEach; ++n) {
          sums[n][0] = fmaf(p[n], x, sums[n][0]);
          sums[n][1] = fmaf(p[n], y, sums[n][1]);
        }
      } else if (seen != 0) {
#pragma unroll
        for (int n = 0; n < kEach; ++n) {
          if (seen >> n & 1) {
            sums[n][0] = fmaf(p[n], x, sums[n][0]);
            sums[n][1] = fmaf(p[n], y, sums[n][1]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    if (mine + n >= count) break;
    float *to = records.values + (args.records + room.queries.number[mine + n]) * D + 2 * pair;
    *reinterpret_cast<float2 *>(to) = make_float2(sums[n][0], sums[n][1]);
  }
}

}  // namespace ft::attention
