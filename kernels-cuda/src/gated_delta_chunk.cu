// Chunked gated delta rule, for prompts: what chunks of 64 rows can do without the state.
//
// Computes the contents of scratch memory (delta_chunk.cuh) from qkv [M, 2 Hk dk + Hv dv],
// alpha, beta [M, Hv], a, dt_bias [Hv], all F32; dk is a multiple of 16 up to DK, the rest
// are zeros. `gated_delta_state` goes on from there.
//
// Launch: blocks of 4 warps, grid (Hk, chunks): a block takes a chunk of a key head
// and its value heads, one after the other. Chunks count from row `first`, a multiple of 64
// from where the call starts; blocks past the live rows do nothing. A warp has 16 rows of
// the products of keys and queries with keys, on tensor cores, in registers for all of its
// heads. The triangular system is solved in F32, a column in a lane, without exchange.
//
// Order of sums: norms, four in a lane, then a butterfly; products, by 16 keys; G in
// F64, pairs of rows, then a scan of 5 steps; the solver, four chains over j, then (0 + 1) +
// (2 + 3). Nothing depends on other chunks or on the number of rows.
// Bound: memory, for a chunk 512 dk bytes of q and k of a key head in and 256 DK out, 16.5 KB
// out of a value head; beside it 64^3 / 6 multiply-adds in F32 of a value head.

#include "delta_chunk.cuh"
#include "reduce.cuh"

namespace {

using namespace ft::delta;

constexpr int kThreads = 128;

// Floats of a row of A: rows 8 apart in banks, so that pairs of columns of eight rows are
// written at once.
constexpr int kStride = kChunk + 8;

struct Args {
  ft::Site site;
  const int *control;
  const float *qkv, *alpha, *beta, *a, *dt_bias;
  char *keys, *heads;
  int first, capacity, value_heads, dk, dv, tiled;
  float eps;
};

template <int DK>
struct Room {
  union {
    struct {
      char keys[kTileBytes<DK>], queries[kTileBytes<DK>];
    };
    struct {
      float a[kChunk][kStride];
      char solver[kSquareBytes], scores[kSquareBytes];
    };
  };
  Factors factors;
  float2 sums[kChunk];  // G in units of log 2, and what its rounding leaves off
  float strength[kChunk];
};

// By one warp: brings four rows of keys or queries to unit length, in binary16, and leaves
// them in shared and scratch memory.
template <int DK>
__device__ inline void bring(char *tile, char *memory, const float *head, size_t width, int row,
                             int count, int dk, float eps) {
  constexpr int kEach = DK / 32, kRows = 4;
  const int lane = threadIdx.x % 32;
  float x[kRows][kEach];
#pragma unroll
  for (int n = 0; n < kRows; ++n) {
    const bool live = row + n < count && kEach * lane < dk;
    const float *from = head + (row + n) * width + kEach * lane;
    if constexpr (kEach == 4) {
      const float4 y = live ? *reinterpret_cast<const float4 *>(from)
                            : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      x[n][0] = y.x, x[n][1] = y.y, x[n][2] = y.z, x[n][3] = y.w;
    } else {
      const float2 y = live ? *reinterpret_cast<const float2 *>(from) : make_float2(0.0f, 0.0f);
      x[n][0] = y.x, x[n][1] = y.y;
    }
  }
  float squares[kRows];
#pragma unroll
  for (int n = 0; n < kRows; ++n) {
    squares[n] = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) squares[n] = fmaf(x[n][i], x[n][i], squares[n]);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
#pragma unroll
    for (int n = 0; n < kRows; ++n) {
      squares[n] += __shfl_xor_sync(ft::kAllLanes, squares[n], distance);
    }
  }
#pragma unroll
  for (int n = 0; n < kRows; ++n) {
    const float unit = 1.0f / sqrtf(squares[n] + eps);
    const uint32_t at = place<DK>(row + n, lane * kEach / 8) + 2 * kEach * lane % 16;
    uint32_t half[kEach / 2];
#pragma unroll
    for (int i = 0; i < kEach / 2; ++i) {
      half[i] = ft::pack_half(x[n][2 * i] * unit, x[n][2 * i + 1] * unit);
    }
    if constexpr (kEach == 4) {
      const uint2 both = make_uint2(half[0], half[1]);
      *reinterpret_cast<uint2 *>(tile + at) = both;
      *reinterpret_cast<uint2 *>(memory + at) = both;
    } else {
      *reinterpret_cast<uint32_t *>(tile + at) = half[0];
      *reinterpret_cast<uint32_t *>(memory + at) = half[0];
    }
  }
}

// By one warp: decays and strengths of a head, two rows in a lane.
template <int DK>
__device__ inline void gates(Room<DK> &room, const Args &args, int head, int row, int count) {
  const int lane = threadIdx.x;
  const float rate = args.a[head], bias = args.dt_bias[head];
  double g[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = 2 * lane + r;
    float strength = 0.0f;
    g[r] = 0.0;
    if (i < count) {
      const size_t at = size_t(row + i) * args.value_heads + head;
      strength = ft::sigmoid(args.beta[at]);
      g[r] = 1.4426950408889634 * double(rate * softplus(args.alpha[at] + bias));
      // Zero in F32, and so are powers of differences; infinities would leave none.
      if (g[r] < -1024.0) g[r] = -1024.0;
    }
    room.strength[i] = strength;
  }
  double sum = g[0] + g[1];
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const double before = __shfl_up_sync(ft::kAllLanes, sum, distance);
    if (lane >= distance) sum += before;
  }
  const double last = __shfl_sync(ft::kAllLanes, sum, 31);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = 2 * lane + r;
    const double now = r ? sum : sum - g[1];
    const float high = float(now);
    room.sums[i] = make_float2(high, float(now - double(high)));
    room.factors.before[i] = exp2f(high);
    room.factors.after[i] = exp2f(float(last - now));
  }
}

// Column `FIRST + lane` of the solver, its rows from `FIRST` on; all before are zeros.
template <int FIRST>
__device__ inline void solve(const float (&a)[kChunk][kStride], char *solver, float strength) {
  constexpr int kCount = kChunk - FIRST;
  const int lane = threadIdx.x % 32, column = FIRST + lane;
  float x[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float chains[4] = {i == lane ? 1.0f : 0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 row = *reinterpret_cast<const float4 *>(&a[FIRST + i][FIRST + j]);
      const float four[4] = {row.x, row.y, row.z, row.w};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (j + r < i) chains[r] = fmaf(-four[r], x[j + r], chains[r]);
      }
    }
    x[i] = (chains[0] + chains[1]) + (chains[2] + chains[3]);
    char *to = solver + place<kChunk>(FIRST + i, column / 8) + 2 * (column % 8);
    *reinterpret_cast<__half *>(to) = __float2half_rn(x[i] * strength);
  }
}

// By `kBy` threads from `thread` on.
template <int kBy>
__device__ inline void copy(char *to, const char *from, int bytes, int thread) {
  for (int at = 16 * thread; at < bytes; at += 16 * kBy) {
    *reinterpret_cast<uint4 *>(to + at) = *reinterpret_cast<const uint4 *>(from + at);
  }
}

template <int DK>
__device__ inline void run(const Args &args) {
  __shared__ __align__(256) Room<DK> room;
  const int rows = ft::live_rows(args.site, args.control, args.capacity);
  const int row = args.first + kChunk * blockIdx.y, count = min(rows - row, kChunk);
  if (count <= 0) return;
  const int key_heads = gridDim.x, key_head = blockIdx.x;
  const int group = args.value_heads / key_heads;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;

  {
    const size_t width =
        2 * size_t(key_heads) * args.dk + size_t(args.value_heads) * args.dv;
    const float *queries = args.qkv + row * width + size_t(key_head) * args.dk;
    const float *keys = queries + size_t(key_heads) * args.dk;
    char *memory = args.keys + (size_t(blockIdx.y) * key_heads + key_head) * kKeyBytes<DK>;
#pragma unroll 1
    for (int n = 16 * warp; n < 16 * warp + 16; n += 4) {
      bring<DK>(room.keys, memory, keys, width, n, count, args.dk, args.eps);
      bring<DK>(room.queries, memory + kTileBytes<DK>, queries, width, n,
                count, args.dk, args.eps);
    }
  }
  __syncthreads();

  // Tiles of 8 columns up to the diagonal.
  float kk[8][4] = {}, qk[8][4] = {};
  {
    const uint32_t keys = ft::shared_address(room.keys);
    const uint32_t row_k = keys + pieces_first<DK>(lane) + 16 * warp * 2 * DK;
    const uint32_t row_q = row_k + kTileBytes<DK>, column = keys + rows_first<DK>(lane);
#pragma unroll
    for (int i = 0; i < DK / 16; ++i) {
      uint32_t k[4], q[4];
      ft::matrices(k, row_k ^ 32 * i);
      ft::matrices(q, row_q ^ 32 * i);
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        if (n > 2 * warp) continue;
        uint32_t b[4];
        ft::matrices(b, (column ^ 32 * i) + 8 * n * 2 * DK);
        ft::mma<false>(kk[n], k, b[0], b[1]);
        ft::mma<false>(kk[n + 1], k, b[2], b[3]);
        ft::mma<false>(qk[n], q, b[0], b[1]);
        ft::mma<false>(qk[n + 1], q, b[2], b[3]);
      }
    }
  }

#pragma unroll 1
  for (int member = 0; member < group; ++member) {
    const int head = args.tiled ? member * key_heads + key_head : key_head * group + member;
    char *memory = args.heads + (size_t(blockIdx.y) * args.value_heads + head) * kHeadBytes;
    if (warp == 0) gates(room, args, head, row, count);
    __syncthreads();  // also the last reading of keys and queries

#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = 16 * warp + 8 * r + g;
      const float2 now = room.sums[i];
      const float strength = room.strength[i];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        if (n > 2 * warp + 1) continue;
        const int j = 8 * n + 2 * t;
        const float4 then = *reinterpret_cast<const float4 *>(&room.sums[j]);
        // Powers of what is past the diagonal could overflow.
        const float first = j <= i ? exp2f((now.x - then.x) + (now.y - then.y)) : 0.0f;
        const float second = j < i ? exp2f((now.x - then.z) + (now.y - then.w)) : 0.0f;
        float2 a;
        a.x = j < i ? strength * kk[n][2 * r] * first : 0.0f;
        a.y = j + 1 < i ? strength * kk[n][2 * r + 1] * second : 0.0f;
        *reinterpret_cast<float2 *>(&room.a[i][j]) = a;
        const float x = j <= i ? qk[n][2 * r] * first : 0.0f;
        const float y = j < i ? qk[n][2 * r + 1] * second : 0.0f;
        *reinterpret_cast<uint32_t *>(room.scores + place<kChunk>(i, n) + 4 * t) =
            ft::pack_half(x, y);
      }
    }
    __syncthreads();

    if (warp == 0) {
      solve<0>(room.a, room.solver, room.strength[lane]);
    } else if (warp == 1) {
      solve<32>(room.a, room.solver, room.strength[32 + lane]);
    } else {
      copy<64>(memory + kSquareBytes, room.scores, kSquareBytes, threadIdx.x - 64);
      copy<64>(memory + 2 * kSquareBytes, reinterpret_cast<const char *>(&room.factors),
               sizeof(Factors), threadIdx.x - 64);
    }
    __syncthreads();
    copy<kThreads>(memory, room.solver, kSquareBytes, threadIdx.x);
  }
}

}  // namespace

#define FT_GATED_DELTA_CHUNK(DK)                                                              \
  extern "C" __global__ void __launch_bounds__(kThreads, 2) gated_delta_chunk_##DK(           \
      ft::Site site, const int *control, const float *qkv, const float *alpha,                \
      const float *beta, const float *a, const float *dt_bias, char *keys, char *heads,       \
      int first, int capacity, int value_heads, int dk, int dv, int tiled, float eps) {       \
    run<DK>(Args{site, control, qkv, alpha, beta, a, dt_bias, keys, heads, first, capacity,   \
                 value_heads, dk, dv, tiled, eps});                                           \
  }
FT_GATED_DELTA_CHUNK(64)
FT_GATED_DELTA_CHUNK(128)
