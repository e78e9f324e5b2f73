// Gated delta rule: over rows in order, over a tree, along an accepted path.
//
// Layouts: qkv [M, 2 Hk dk + Hv dv], queries, keys, values; alpha, beta [M, Hv]; a,
// dt_bias [Hv]; state [Hv, dv, dk]; out [M, Hv, dv]. All F32.
//
// Launch: a block of 128 threads for 16 of a head's dv columns: grid (dv / 16, Hv). A
// column's state lies in the registers of 8 lanes, element `32 i + 4 j + r` in lane j, for
// the whole call. Rows come in tiles through shared memory, brought to unit length by a
// warp for each row; the next tile's loads are under way while a tile is worked on.
//
// A kernel follows a list of entries, one row each: rows 0, 1, 2..., the rows of a path,
// or a tree depth first. At a node of a tree its leaves come first: they leave the
// registers as they are. Below a node with several children that go on, the node's state
// is kept in shared memory; when that is full, the path to it is run again. A row's
// instructions are the same wherever its entry stands.
//
// Order of sums: norms, lane-strided, then a butterfly of 5 steps; products with the state,
// four chains over `i`, then (0 + 1) + (2 + 3), then a butterfly of 3 steps.
// Bound: for few rows memory, twice the state; for many the instructions of the chain, 4
// multiply-adds for each element of the state and row.

#include "ancestry.cuh"

namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kColumns = 16;
constexpr unsigned kAll = 0xffffffffu;

// What to do with a row: bits of an entry, its row in the low six.
constexpr unsigned kRowBits = 63;
constexpr unsigned kOutput = 64;        // write the output
constexpr unsigned kKeep = 128;         // leave the registers with the row's state
constexpr unsigned kSaveShift = 8;      // then copy them to place n - 1
constexpr unsigned kLoadShift = 10;     // first take them from place n - 1
constexpr unsigned kPlaceMask = 3;
constexpr unsigned kInitial = 1 << 12;  // first take them from the state in memory

// A tree's entries: each row once, and rows of paths that are run again. Of the latter
// there are at most half the rows of a path (one each time, and a child with a child of
// its own stands for each) times its length: 16 * 32.
constexpr int kMaxEntries = ft::kMaxTree + 512;

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
  static constexpr int kEach = kTile / kWarps;       // of them for each warp
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

// A tile on its way: what a thread has loaded of it.
template <int NV>
struct Raw {
  float k[Sizes<NV>::kEach][NV / 4];
  float q[Sizes<NV>::kEach][NV / 4];
  float v, alpha, beta;
};

struct Nothing {};

// What only trees need.
template <int NV>
struct TreeRoom {
  float4 kept[Sizes<NV>::kPlaces][NV / 4][kThreads];
  ft::Tree tree;
  ft::Rowset paths[ft::kMaxTree], left[ft::kMaxTree];
  signed char place[ft::kMaxTree];
  unsigned short entries[kMaxEntries];
  int count;
};

template <bool TREE, int NV>
struct RoomOf {
  using Type = Nothing;
};
template <int NV>
struct RoomOf<true, NV> {
  using Type = TreeRoom<NV>;
};

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) x = __fadd_rn(x, __shfl_xor_sync(kAll, x, step));
  return x;
}

// Sum over the 8 lanes of a column.
__device__ inline float column_sum(const float (&chains)[4]) {
  float x = __fadd_rn(__fadd_rn(chains[0], chains[1]), __fadd_rn(chains[2], chains[3]));
#pragma unroll
  for (int step = 4; step > 0; step >>= 1) x = __fadd_rn(x, __shfl_xor_sync(kAll, x, step));
  return x;
}

__device__ inline float softplus(float x) {
  // Past 20, e^-x is below half a unit of x.
  return x > 20.0f ? x : log1pf(expf(x));
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

// Loads what this thread takes of a tile; `row_of` gives the row of an entry.
template <int NV, class RowOf>
__device__ inline void fetch(Raw<NV> &raw, const Args &args, const Head &head, int first,
                             int count, RowOf row_of) {
  using S = Sizes<NV>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < S::kEach; ++n) {
    const int entry = first + warp + n * kWarps;
    const bool live = entry < count;
    const float *q = args.qkv + (live ? row_of(entry) : 0) * head.width +
                     size_t(head.key_head) * args.dk;
    const float *k = q + size_t(args.key_heads) * args.dk;
#pragma unroll
    for (int i = 0; i < NV / 4; ++i) {
      const bool inside = live && lane + 32 * i < args.dk;
      raw.k[n][i] = inside ? k[lane + 32 * i] : 0.0f;
      raw.q[n][i] = inside ? q[lane + 32 * i] : 0.0f;
    }
  }
  const int entry = first + threadIdx.x / kColumns;
  const int column = head.first + threadIdx.x % kColumns;
  raw.v = 0.0f;
  if (threadIdx.x < S::kTile * kColumns && entry < count && column < args.dv) {
    const float *values = args.qkv + row_of(entry) * head.width +
                          2 * size_t(args.key_heads) * args.dk + size_t(head.head) * args.dv;
    raw.v = values[column];
  }
  raw.alpha = raw.beta = 0.0f;
  if (threadIdx.x < S::kTile && first + int(threadIdx.x) < count) {
    const size_t at = size_t(row_of(first + threadIdx.x)) * head.value_heads + head.head;
    raw.alpha = args.alpha[at];
    raw.beta = args.beta[at];
  }
}

// Brings a tile to unit length and puts it where all see it.
template <int NV>
__device__ inline void settle(const Raw<NV> &raw, Tile<NV> &tile, const Args &args,
                              const Head &head) {
  using S = Sizes<NV>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < S::kEach; ++n) {
    float kk = 0.0f, qq = 0.0f;
#pragma unroll
    for (int i = 0; i < NV / 4; ++i) {
      kk = fmaf(raw.k[n][i], raw.k[n][i], kk);
      qq = fmaf(raw.q[n][i], raw.q[n][i], qq);
    }
    const float by_k = 1.0f / sqrtf(__fadd_rn(warp_sum(kk), args.eps));
    const float by_q = __fmul_rn(1.0f / sqrtf(__fadd_rn(warp_sum(qq), args.eps)),
                                 1.0f / sqrtf(float(args.dk)));
    const int row = warp + n * kWarps;
#pragma unroll
    for (int i = 0; i < NV / 4; ++i) {
      tile.k[row][lane + 32 * i] = __fmul_rn(raw.k[n][i], by_k);
      tile.q[row][lane + 32 * i] = __fmul_rn(raw.q[n][i], by_q);
    }
  }
  if (threadIdx.x < S::kTile * kColumns) {
    tile.v[threadIdx.x / kColumns][threadIdx.x % kColumns] = raw.v;
  }
  if (threadIdx.x < S::kTile) {
    const float x = __fadd_rn(raw.alpha, args.dt_bias[head.head]);
    tile.decay[threadIdx.x] = expf(__fmul_rn(args.a[head.head], softplus(x)));
    tile.strength[threadIdx.x] = 1.0f / (1.0f + expf(-raw.beta));
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
      const float4 x = *reinterpret_cast<const float4 *>(column + at);
      s[4 * i] = x.x, s[4 * i + 1] = x.y, s[4 * i + 2] = x.z, s[4 * i + 3] = x.w;
      continue;
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) s[4 * i + r] = column && at + r < args.dk ? column[at + r] : 0.0f;
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

// One row of one column; returns its output. `keep` is the same for all of the block.
template <int NV>
__device__ inline float step(float (&s)[NV], const Tile<NV> &tile, int row, int column,
                             bool keep) {
  const int j = threadIdx.x % 8;
  const float decay = tile.decay[row], strength = tile.strength[row];
  float k[NV];
  float chains[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < NV / 4; ++i) {
    const float4 x = *reinterpret_cast<const float4 *>(&tile.k[row][32 * i + 4 * j]);
    k[4 * i] = x.x, k[4 * i + 1] = x.y, k[4 * i + 2] = x.z, k[4 * i + 3] = x.w;
#pragma unroll
    for (int r = 0; r < 4; ++r) chains[r] = fmaf(s[4 * i + r], k[4 * i + r], chains[r]);
  }
  const float known = column_sum(chains);
  const float write = __fmul_rn(strength, fmaf(-decay, known, tile.v[row][column]));
  chains[0] = chains[1] = chains[2] = chains[3] = 0.0f;
#pragma unroll
  for (int i = 0; i < NV / 4; ++i) {
    const float4 x = *reinterpret_cast<const float4 *>(&tile.q[row][32 * i + 4 * j]);
    const float q[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float now = fmaf(write, k[4 * i + r], __fmul_rn(decay, s[4 * i + r]));
      chains[r] = fmaf(now, q[r], chains[r]);
      if (keep) s[4 * i + r] = now;
    }
  }
  return column_sum(chains);
}

// The entries of a tree, by one thread; `inner` are the rows with children.
template <int NV>
__device__ inline void plan(TreeRoom<NV> &room, ft::Rowset inner) {
  int count = 0, node = 0;
  int held = 0;  // the row whose state the registers hold
  unsigned free = (1u << Sizes<NV>::kPlaces) - 1;
  auto several = [&](int row) { return __popcll(room.left[row] & inner) >= 2; };
  auto push = [&](unsigned entry) {
    if (count < kMaxEntries) room.entries[count++] = static_cast<unsigned short>(entry);
  };
  // A row that goes on, with a place to keep its state in when there will be need and room.
  auto visit = [&](int row, unsigned load) {
    unsigned entry = row | kOutput | kKeep | load;
    if (several(row) && free) {
      const int place = __ffs(free) - 1;
      free &= free - 1;
      room.place[row] = static_cast<signed char>(place);
      entry |= unsigned(place + 1) << kSaveShift;
    }
    push(entry);
    held = row;
  };
  visit(0, 0);
  while (true) {
    const ft::Rowset children = room.left[node];
    if (children == 0) {
      if (node == 0) break;
      node = room.tree.parents[node];
      continue;
    }
    const ft::Rowset leaves = children & ~inner;
    const int next = __ffsll(static_cast<long long>(leaves ? leaves : children)) - 1;
    room.left[node] = children & ~(ft::Rowset(1) << next);
    unsigned load = 0;
    if (held != node) {
      int from = node;
      while (from >= 0 && room.place[from] < 0) from = room.tree.parents[from];
      load = from < 0 ? kInitial : unsigned(room.place[from] + 1) << kLoadShift;
      ft::Rowset again = room.paths[node] & ~(from < 0 ? 0 : room.paths[from]);
      for (; again; again &= again - 1) {
        push(unsigned(__ffsll(static_cast<long long>(again)) - 1) | kKeep | load);
        load = 0;
      }
      held = node;
    }
    if (!(inner >> next & 1)) {
      push(next | kOutput | load);
      continue;
    }
    if (room.place[node] >= 0 && !(room.left[node] & inner)) {
      // The last child to need it: its entry loads before it keeps.
      free |= 1u << room.place[node];
      room.place[node] = -1;
    }
    visit(next, load);
    node = next;
  }
  room.count = count;
}

// Reads a tree and plans the way through it. Returns the number of entries, 0 when the
// launch has failed; `listed` says whether they are in the list, or simply the rows.
template <int NV>
__device__ inline int prepare(TreeRoom<NV> &room, const Args &args, int rows, bool &listed) {
  if (!ft::read_tree(args.site, args.parents, args.depths, rows, room.tree)) return 0;
  const int row = threadIdx.x;
  const bool follows = row == 0 || row >= rows || room.tree.parents[row] == row - 1;
  listed = !__syncthreads_and(follows);
  if (!listed) return rows;
  if (row < rows) {
    room.paths[row] = ft::path_to(room.tree, row);
    room.left[row] = 0;
    room.place[row] = -1;
  }
  __syncthreads();
  if (row > 0 && row < rows) {
    atomicOr(&room.left[room.tree.parents[row]], ft::Rowset(1) << row);
  }
  __syncthreads();
  if (row == 0) {
    ft::Rowset inner = 0;
    for (int at = 0; at < rows; ++at) inner |= ft::Rowset(room.left[at] != 0) << at;
    plan(room, inner);
  }
  __syncthreads();
  return room.count;
}

template <int NV, bool TREE>
__device__ inline void run(const Args &args) {
  using S = Sizes<NV>;
  __shared__ __align__(16) Tile<NV> tiles[2];
  __shared__ __align__(16) typename RoomOf<TREE, NV>::Type room;
  __shared__ int path[TREE ? 1 : ft::kMaxTree];
  const int rows = ft::live_rows(args.site, args.control, args.capacity);
  if (rows == 0 && !args.path) return;

  const Head head(args);
  const int local = threadIdx.x / 8;  // of the block's columns
  const int column = head.first + local;
  const bool live = column < args.dv;
  float *const memory =
      live ? args.state + (size_t(head.head) * args.dv + column) * args.dk : nullptr;
  float s[NV];
  load_state(s, memory, args);

  int count = rows;
  bool listed = false;
  if constexpr (TREE) {
    count = prepare(room, args, rows, listed);
    if (count == 0) return;
  } else if (args.path) {
    count = ft::read_path(args.site, args.path, args.path_capacity, rows, path);
    if (count == 0) return;
  }
  auto entry_of = [&](int at) -> unsigned {
    if constexpr (TREE) return listed ? room.entries[at] : at | kOutput | kKeep;
    return kOutput | kKeep;
  };
  auto row_of = [&](int at) -> int {
    if constexpr (TREE) {
      return entry_of(at) & kRowBits;
    } else {
      return args.path ? path[at] : at;
    }
  };

  Raw<NV> raw;
  fetch(raw, args, head, 0, count, row_of);
  settle(raw, tiles[0], args, head);
  __syncthreads();
  for (int first = 0, turn = 0; first < count; first += S::kTile, turn ^= 1) {
    const bool more = first + S::kTile < count;
    if (more) fetch(raw, args, head, first + S::kTile, count, row_of);
    const Tile<NV> &tile = tiles[turn];
    for (int at = first; at < min(count, first + S::kTile); ++at) {
      const unsigned entry = entry_of(at);
      if constexpr (TREE) {
        if (entry & kInitial) load_state(s, memory, args);
        if (const unsigned place = entry >> kLoadShift & kPlaceMask) {
#pragma unroll
          for (int i = 0; i < NV / 4; ++i) {
            const float4 x = room.kept[place - 1][i][threadIdx.x];
            s[4 * i] = x.x, s[4 * i + 1] = x.y, s[4 * i + 2] = x.z, s[4 * i + 3] = x.w;
          }
        }
      }
      const float out = step(s, tile, at - first, local, (entry & kKeep) != 0);
      if ((entry & kOutput) && args.out && live && threadIdx.x % 8 == 0) {
        args.out[(size_t(row_of(at)) * head.value_heads + head.head) * args.dv + column] = out;
      }
      if constexpr (TREE) {
        if (const unsigned place = entry >> kSaveShift & kPlaceMask) {
#pragma unroll
          for (int i = 0; i < NV / 4; ++i) {
            room.kept[place - 1][i][threadIdx.x] =
                make_float4(s[4 * i], s[4 * i + 1], s[4 * i + 2], s[4 * i + 3]);
          }
        }
      }
    }
    if (more) settle(raw, tiles[turn ^ 1], args, head);
    __syncthreads();
  }
  if (!TREE && live) store_state(s, memory, args);
}

}  // namespace

// Rows in order, or with `path` (and without `out`) those of an accepted path; the state
// is left as it is after the last of them. NV is dk / 8, rounded up to a size there is.
#define FT_GATED_DELTA(NV)                                                                    \
  extern "C" __global__ void __launch_bounds__(kThreads) gated_delta_##NV(                    \
      ft::Site site, const int *control, const int *path, const float *qkv,                   \
      const float *alpha, const float *beta, const float *a, const float *dt_bias,            \
      float *state, float *out, int path_capacity, int capacity, int key_heads, int dk,       \
      int dv, int tiled, int wide, float eps) {                                               \
    run<NV, false>(Args{site, control, nullptr, nullptr, path, qkv, alpha, beta, a, dt_bias,  \
                        state, out, path_capacity, capacity, key_heads, dk, dv, tiled, wide,  \
                        eps});                                                                \
  }                                                                                           \
  extern "C" __global__ void __launch_bounds__(kThreads) gated_delta_tree_##NV(               \
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
