// Gated delta rule: over rows in order, over a tree, along an accepted path.
//
// Layouts: qkv [M, 2 Hk dk + Hv dv], queries, keys, values; alpha, beta [M, Hv]; a,
// dt_bias [Hv]; state [Hv, dv, dk]; out [M, Hv, dv]. All F32.
//
// Launch: a block of 3 warps for 16 of a head's dv columns: grid (dv / 16, Hv). A column's
// state lies in the registers of 8 lanes of the first 2 warps, element `32 i + 4 j + r` in
// lane j, for the whole call; lanes have two columns, which share what is read of a row. Rows
// come in tiles through shared memory: the last warp loads them and brings them to unit length
// while the others work on the tile before; the first tile these bring themselves.
//
// A kernel follows a list of entries, one row each: rows 0, 1, 2..., the rows of a path,
// or a tree depth first. At a node of a tree its leaves come first: they leave the
// registers as they are. Below a node with several children that go on, the node's state
// is kept in shared memory; when that is full, the path to it is run again. A row's
// instructions are the same wherever its entry stands.
//
// Order of sums: norms, lane-strided, then a butterfly of 5 steps; products with the state,
// four chains over `i`, then (0 + 1) + (2 + 3), then a butterfly of 3 steps (lanes 4, 2, 1
// apart). The outputs of four rows go through one butterfly that ends with one row in
// each lane: the same sums of the same pairs.
// Bound: for few rows memory, twice the state; for many the instructions of the chain, 4
// multiply-adds for each element of the state and row.

#include "delta_gates.cuh"
#include "delta_walk.cuh"

namespace {

using namespace ft::delta;

constexpr int kColumns = 16;
constexpr int kOwn = 2;                       // columns of a thread, kColumns / kOwn apart
constexpr int kApart = kColumns / kOwn;
constexpr int kWorkers = 8 * kApart;          // threads with a state
constexpr int kThreads = kWorkers + 32;       // and the warp that brings the rows

struct Args {
  ft::Site site;
  const int *control, *parents, *depths, *path;
  const float *qkv, *alpha, *beta, *a, *dt_bias;
  float *state, *out;
  int path_capacity, capacity, key_heads, dk, dv, tiled, wide;
  float eps;
};

// NV values of each column in a lane.
template <int NV>
struct Sizes {
  static constexpr int kPadded = 8 * NV;             // dk, rounded up
  static constexpr int kTile = NV > 16 ? 4 : 8;      // rows in a tile
  static constexpr int kPlaces = NV > 16 ? 1 : 3;    // states of tree nodes kept
};

template <int NV>
struct Tile {
  float k[Sizes<NV>::kTile][Sizes<NV>::kPadded];
  float q[Sizes<NV>::kTile][Sizes<NV>::kPadded];
  float v[Sizes<NV>::kTile][kColumns];
  float decay[Sizes<NV>::kTile];
  float strength[Sizes<NV>::kTile];
};

struct Nothing {};

// What only trees need.
template <int NV>
struct TreeRoom {
  float4 kept[Sizes<NV>::kPlaces][kOwn][NV / 4][kWorkers];
  Walk<Sizes<NV>::kPlaces> walk;
};

template <bool TREE, int NV>
struct RoomOf {
  using Type = Nothing;
};
template <int NV>
struct RoomOf<true, NV> {
  using Type = TreeRoom<NV>;
};

__device__ inline float joined(const float (&chains)[4]) {
  return __fadd_rn(__fadd_rn(chains[0], chains[1]), __fadd_rn(chains[2], chains[3]));
}

// Sum over the 8 lanes of a column.
__device__ inline float column_sum(float x) {
#pragma unroll
  for (int step = 4; step > 0; step >>= 1) x = __fadd_rn(x, __shfl_xor_sync(kAll, x, step));
  return x;
}

// Sums of N values at a time over 2 STEP lanes, N at most as many: lane l of them gets that
// of value l / (2 STEP / N). One by one they would be sums of the same pairs.
template <int STEP, int N>
__device__ inline float spread_sums(const float (&x)[N]) {
  if constexpr (N == 1) {
    float sum = x[0];
#pragma unroll
    for (int step = STEP; step > 0; step >>= 1) {
      sum = __fadd_rn(sum, __shfl_xor_sync(kAll, sum, step));
    }
    return sum;
  } else {
    const bool upper = threadIdx.x & STEP;
    float y[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float kept = upper ? x[i + N / 2] : x[i], sent = upper ? x[i] : x[i + N / 2];
      y[i] = __fadd_rn(kept, __shfl_xor_sync(kAll, sent, STEP));
    }
    return spread_sums<STEP / 2>(y);
  }
}

// Where a head of a block lies in the operands.
struct Head {
  int head, key_head, value_heads, first;  // first: of the block's columns
  size_t width;
  __device__ Head(const Args &args) {
    value_heads = gridDim.y;
    head = blockIdx.y;
    const int group = value_heads / args.key_heads;
    key_head = args.tiled ? head % args.key_heads : head / group;
    first = blockIdx.x * kColumns;
    width = 2 * size_t(args.key_heads) * args.dk + size_t(value_heads) * args.dv;
  }
};

// By one warp: loads kRows rows of a tile from its row `place` on, brings them to unit length
// and puts them where all see them; `first` is the entry of the first of them, `row_of` gives
// the row of an entry.
template <int kRows, int NV, class RowOf>
__device__ inline void bring(Tile<NV> &tile, int place, const Args &args, const Head &head,
                             int first, int count, RowOf row_of) {
  const int lane = threadIdx.x % 32;
  float k[kRows][NV / 4], q[kRows][NV / 4];
#pragma unroll
  for (int n = 0; n < kRows; ++n) {
    const bool live = first + n < count;
    const float *from = args.qkv + (live ? row_of(first + n) : 0) * head.width +
                        size_t(head.key_head) * args.dk;
    const float *next = from + size_t(args.key_heads) * args.dk;
#pragma unroll
    for (int i = 0; i < NV / 4; ++i) {
      const bool inside = live && lane + 32 * i < args.dk;
      q[n][i] = inside ? from[lane + 32 * i] : 0.0f;
      k[n][i] = inside ? next[lane + 32 * i] : 0.0f;
    }
  }
  float v[kRows * kColumns / 32], alpha = 0.0f, beta = 0.0f;
#pragma unroll
  for (int i = 0; i < kRows * kColumns / 32; ++i) {
    const int n = (32 * i + lane) / kColumns, column = head.first + lane % kColumns;
    v[i] = 0.0f;
    if (first + n < count && column < args.dv) {
      v[i] = args.qkv[row_of(first + n) * head.width + 2 * size_t(args.key_heads) * args.dk +
                      size_t(head.head) * args.dv + column];
    }
  }
  if (lane < kRows && first + lane < count) {
    const size_t at = size_t(row_of(first + lane)) * head.value_heads + head.head;
    alpha = args.alpha[at], beta = args.beta[at];
  }
  const float rate = args.a[head.head], bias = args.dt_bias[head.head];
  // All loads are under way.
#pragma unroll
  for (int i = 0; i < kRows * kColumns / 32; ++i) {
    tile.v[place + (32 * i + lane) / kColumns][lane % kColumns] = v[i];
  }
  if (lane < kRows) {
    tile.decay[place + lane] = expf(__fmul_rn(rate, softplus(__fadd_rn(alpha, bias))));
    tile.strength[place + lane] = 1.0f / (1.0f + expf(-beta));
  }
  // Each lane has a factor, of keys, then of queries: roots and quotients take long.
  float squares[2 * kRows];
#pragma unroll
  for (int n = 0; n < kRows; ++n) {
    squares[n] = squares[kRows + n] = 0.0f;
#pragma unroll
    for (int i = 0; i < NV / 4; ++i) {
      squares[n] = fmaf(k[n][i], k[n][i], squares[n]);
      squares[kRows + n] = fmaf(q[n][i], q[n][i], squares[kRows + n]);
    }
  }
  const float square = __fadd_rn(spread_sums<16>(squares), args.eps);
  const float unit = 1.0f / sqrtf(square);
  const float factor = lane < 16 ? unit : __fmul_rn(unit, 1.0f / sqrtf(float(args.dk)));
#pragma unroll
  for (int n = 0; n < kRows; ++n) {
    constexpr int kLanes = 16 / kRows;
    const float by_k = __shfl_sync(kAll, factor, kLanes * n);
    const float by_q = __shfl_sync(kAll, factor, kLanes * (kRows + n));
#pragma unroll
    for (int i = 0; i < NV / 4; ++i) {
      tile.k[place + n][lane + 32 * i] = __fmul_rn(k[n][i], by_k);
      tile.q[place + n][lane + 32 * i] = __fmul_rn(q[n][i], by_q);
    }
  }
}

// The state of this thread's column between memory and registers.
template <int NV>
__device__ inline void load_state(float (&s)[NV], const float *column, const Args &args) {
  const int j = threadIdx.x % 8;
#pragma unroll
  for (int i = 0; i < NV / 4; ++i) {
    const int at = 32 * i + 4 * j;
    if (args.wide && at < args.dk && column) {
      const float4 x = __ldcg(reinterpret_cast<const float4 *>(column + at));
      s[4 * i] = x.x, s[4 * i + 1] = x.y, s[4 * i + 2] = x.z, s[4 * i + 3] = x.w;
      continue;
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      s[4 * i + r] = column && at + r < args.dk ? __ldcg(column + at + r) : 0.0f;
    }
  }
}

template <int NV>
__device__ inline void store_state(const float (&s)[NV], float *column, const Args &args) {
  const int j = threadIdx.x % 8;
#pragma unroll
  for (int i = 0; i < NV / 4; ++i) {
    const int at = 32 * i + 4 * j;
    if (args.wide && at < args.dk) {
      *reinterpret_cast<float4 *>(column + at) =
          make_float4(s[4 * i], s[4 * i + 1], s[4 * i + 2], s[4 * i + 3]);
      continue;
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      if (at + r < args.dk) column[at + r] = s[4 * i + r];
    }
  }
}

// One row of a thread's columns, the first of which is `column`; gives this lane's part of
// their outputs. `keep` is the same for all of the block.
template <int NV>
__device__ inline void step(float (&s)[kOwn][NV], const Tile<NV> &tile, int row, int column,
                            bool keep, float (&out)[kOwn]) {
  const int j = threadIdx.x % 8;
  const float decay = tile.decay[row], strength = tile.strength[row];
  float k[NV];
  float chains[kOwn][4] = {};
#pragma unroll
  for (int i = 0; i < NV / 4; ++i) {
    const float4 x = *reinterpret_cast<const float4 *>(&tile.k[row][32 * i + 4 * j]);
    k[4 * i] = x.x, k[4 * i + 1] = x.y, k[4 * i + 2] = x.z, k[4 * i + 3] = x.w;
#pragma unroll
    for (int c = 0; c < kOwn; ++c) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        chains[c][r] = fmaf(s[c][4 * i + r], k[4 * i + r], chains[c][r]);
      }
    }
  }
  float write[kOwn];
#pragma unroll
  for (int c = 0; c < kOwn; ++c) {
    const float known = column_sum(joined(chains[c]));
    write[c] = __fmul_rn(strength, fmaf(-decay, known, tile.v[row][column + c * kApart]));
    chains[c][0] = chains[c][1] = chains[c][2] = chains[c][3] = 0.0f;
  }
#pragma unroll
  for (int i = 0; i < NV / 4; ++i) {
    const float4 x = *reinterpret_cast<const float4 *>(&tile.q[row][32 * i + 4 * j]);
    const float q[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int c = 0; c < kOwn; ++c) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        float &state = s[c][4 * i + r];
        const float now = fmaf(write[c], k[4 * i + r], __fmul_rn(decay, state));
        chains[c][r] = fmaf(now, q[r], chains[c][r]);
        if (keep) state = now;
      }
    }
  }
#pragma unroll
  for (int c = 0; c < kOwn; ++c) out[c] = joined(chains[c]);
}

// All of the block, from both of its loops.
__device__ inline void meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

template <int NV, bool TREE>
__device__ inline void run(const Args &args) {
  using S = Sizes<NV>;
  __shared__ __align__(16) Tile<NV> tiles[2];
  __shared__ __align__(16) typename RoomOf<TREE, NV>::Type room;
  __shared__ int path[TREE ? 1 : ft::kMaxTree];
  const int rows = max(0, ft::rows_ahead(args.site, args.control, args.capacity));

  const Head head(args);
  const int local = threadIdx.x / 8;  // of the block's columns, the thread's first
  const bool works = threadIdx.x < kWorkers;
  auto is_live = [&](int c) { return head.first + local + c * kApart < args.dv; };
  // Where a column's state lies in memory: in shared memory until it is wanted again.
  __shared__ float *states[kColumns];
  float s[kOwn][NV];
  // No predecessor that still runs writes the state (`Launch::publishes`), or the tree.
#pragma unroll
  for (int c = 0; works && c < kOwn; ++c) {
    const size_t column = head.first + local + c * kApart;
    float *const state =
        is_live(c) ? args.state + (size_t(head.head) * args.dv + column) * args.dk : nullptr;
    load_state(s[c], state, args);
    if (threadIdx.x % 8 == 0) states[local + c * kApart] = state;
  }

  int count = rows;
  bool listed = false;
  if constexpr (TREE) {
    if (rows > 0) count = prepare(room.walk, args.site, args.parents, args.depths, rows, listed);
  }
  ft::after_previous();
  if (count == 0 && !args.path) return;
  if constexpr (!TREE) {
    if (args.path) {
      count = ft::read_path(args.site, args.path, args.path_capacity, rows, path);
      if (count == 0) return;
    }
  }
  auto entry_of = [&](int at) -> unsigned {
    if constexpr (TREE) return listed ? room.walk.entries[at] : at | kOutput | kKeep;
    return kOutput | kKeep;
  };
  auto row_of = [&](int at) -> int {
    if constexpr (TREE) {
      return entry_of(at) & kRowBits;
    } else {
      return args.path ? path[at] : at;
    }
  };

  auto put = [&](int at, int c, float out) {
    if (is_live(c) && args.out) {
      args.out[(size_t(row_of(at)) * head.value_heads + head.head) * args.dv + head.first + local +
               c * kApart] = out;
    }
  };
  auto move = [&](unsigned place, bool load) {
    if constexpr (TREE) {
#pragma unroll
      for (int i = 0; i < kOwn * NV / 4; ++i) {
        float *const four = &s[i / (NV / 4)][i % (NV / 4) * 4];
        float4 &kept = room.kept[place - 1][i / (NV / 4)][i % (NV / 4)][threadIdx.x];
        if (load) {
          four[0] = kept.x, four[1] = kept.y, four[2] = kept.z, four[3] = kept.w;
        } else {
          kept = make_float4(four[0], four[1], four[2], four[3]);
        }
      }
    }
  };

  constexpr int kTile = S::kTile;
  constexpr int kEach = kTile * 32 / kWorkers;  // rows of the first tile that a warp brings
  if (!works) {
    // Apart from the others' loop: what brings rows has no state in registers. The second tile
    // comes while the others bring the first.
    for (int turn = 0; turn <= (count + kTile - 1) / kTile; ++turn) {
      const int number = turn == 0 ? 1 : turn, first = number * kTile;
      if (turn != 1 && first < count) {
        bring<kTile>(tiles[number % 2], 0, args, head, first, count, row_of);
      }
      meet();
    }
    return;
  }
  const int place = threadIdx.x / 32 * kEach;
  bring<kEach>(tiles[0], place, args, head, place, count, row_of);
  meet();
  // Code that runs once is slow to fetch: what there is twice of is kept in loops.
  for (int first = 0, turn = 0; first < count; first += kTile, turn ^= 1) {
    const Tile<NV> &tile = tiles[turn];
    if (!listed && first + kTile <= count) {
      // Some rows at a time: for all there would not be registers.
      constexpr int kPart = 4;
#pragma unroll 1
      for (int part = 0; part < kTile; part += kPart) {
        float outs[kOwn][kPart];
#pragma unroll
        for (int n = 0; n < kPart; ++n) {
          float out[kOwn];
          step(s, tile, part + n, local, true, out);
#pragma unroll
          for (int c = 0; c < kOwn; ++c) outs[c][n] = out[c];
        }
        const int n = threadIdx.x % 8 / (8 / kPart);
#pragma unroll
        for (int c = 0; c < kOwn; ++c) {
          const float out = spread_sums<4>(outs[c]);
          if (threadIdx.x % (8 / kPart) == 0) put(first + part + n, c, out);
        }
      }
    } else {
      float parts[kOwn] = {};  // of the row before: its sums go along with the next row's work
      int before = -1;
      auto end = [&] {
#pragma unroll
        for (int c = 0; c < kOwn; ++c) {
          const float out = column_sum(parts[c]);
          if (before >= 0 && threadIdx.x % 8 == 0) put(before, c, out);
        }
      };
#pragma unroll 1
      for (int at = first; at < min(count, first + kTile); ++at) {
        const unsigned entry = entry_of(at);
        if (entry & kInitial) {
#pragma unroll
          for (int c = 0; c < kOwn; ++c) load_state(s[c], states[local + c * kApart], args);
        }
        const unsigned load = entry >> kLoadShift & kPlaceMask;
        const unsigned save = entry >> kSaveShift & kPlaceMask;
        if (load) move(load, true);
        end();
        step(s, tile, at - first, local, (entry & kKeep) != 0, parts);
        before = entry & kOutput ? at : -1;
        if (save) move(save, false);
      }
      end();
    }
    meet();
  }
#pragma unroll
  for (int c = 0; !TREE && c < kOwn; ++c) {
    if (is_live(c)) store_state(s[c], states[local + c * kApart], args);
  }
}

}  // namespace

// Rows in order, or with `path` (and without `out`) those of an accepted path; the state
// is left as it is after the last of them. NV is dk / 8, rounded up to a size there is.
#define FT_GATED_DELTA(NV)                                                                    \
  extern "C" __global__ void __launch_bounds__(kThreads, NV > 16 ? 2 : 3) gated_delta_##NV(   \
      ft::Site site, const int *control, const int *path, const float *qkv,                   \
      const float *alpha, const float *beta, const float *a, const float *dt_bias,            \
      float *state, float *out, int path_capacity, int capacity, int key_heads, int dk,       \
      int dv, int tiled, int wide, float eps) {                                               \
    run<NV, false>(Args{site, control, nullptr, nullptr, path, qkv, alpha, beta, a, dt_bias,  \
                        state, out, path_capacity, capacity, key_heads, dk, dv, tiled, wide,  \
                        eps});                                                                \
  }                                                                                           \
  extern "C" __global__ void __launch_bounds__(kThreads, NV > 16 ? 2 : 3)                     \
      gated_delta_tree_##NV(                                                                  \
      ft::Site site, const int *control, const int *parents, const int *depths,               \
      const float *qkv, const float *alpha, const float *beta, const float *a,                \
      const float *dt_bias, float *state, float *out, int capacity, int key_heads, int dk,    \
      int dv, int tiled, int wide, float eps) {                                               \
    run<NV, true>(Args{site, control, parents, depths, nullptr, qkv, alpha, beta, a, dt_bias, \
                       state, out, 0, capacity, key_heads, dk, dv, tiled, wide, eps});        \
  }
FT_GATED_DELTA(4)
FT_GATED_DELTA(8)
FT_GATED_DELTA(16)
FT_GATED_DELTA(32)
