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
// heads. 1 + A is inverted in place in shared memory (delta_inverse.cuh).
//
// Order of sums: norms, four in a lane, then a butterfly; products, by 16 keys; G in
// F64, pairs of rows, then a scan of 5 steps. Nothing depends on other chunks or on the
// number of rows.
// Bound: memory, for a chunk 512 dk bytes of q and k of a key head in and 256 DK out, 16.5 KB
// out of a value head. In practice the waits between the steps of a chunk.

#include "delta_chunk.cuh"
#include "delta_inverse.cuh"
#include "reduce.cuh"

namespace {

using namespace ft::delta;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

struct Args {
  ft::Site site;
  const int *control;
  const float *qkv, *alpha, *beta, *a, *dt_bias;
  char *keys, *heads;
  int first, capacity, value_heads, dk, dv, tiled;
  float eps;
};

struct Gates {
  Factors factors;
  float2 sums[kChunk];  // G in units of log 2, and what its rounding leaves off
  float strength[kChunk];
};

template <int DK>
struct Room {
  union {
    char keys[kKeyBytes<DK>];
    struct {
      Square a;  // then the solver
      char scores[kSquareBytes];
    };
  };
  Gates gates[kWarps];  // of as many value heads
};

// By one warp: brings eight rows of keys or queries to a length, in binary16, and leaves
// them in shared and scratch memory.
template <int DK>
__device__ inline void bring(char *tile, char *memory, const float *head, size_t width, int row,
                             int count, int dk, float eps, float length) {
  constexpr int kEach = DK / 32, kRows = 8;
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
    const float unit = length / sqrtf(squares[n] + eps);
    const uint32_t at = kEach * lane / 64 * kLineBytes +
                        place(row + n, kEach * lane % 64 / 8) + 2 * kEach * lane % 16;
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
__device__ inline void make(Gates &gates, const Args &args, int head, int row, int count) {
  const int lane = threadIdx.x % 32;
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
    gates.strength[i] = strength;
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
    gates.sums[i] = make_float2(high, float(now - double(high)));
    gates.factors.before[i] = exp2f(high);
    gates.factors.after[i] = exp2f(float(last - now));
  }
}

// By all threads: the solver and the scores, and factors.
__device__ inline void leave(char *memory, const Square &solver, const char *scores,
                             const Gates &gates) {
#pragma unroll 1
  for (int at = threadIdx.x; at < kChunk * 8; at += kThreads) {
    const int row = at / 8, piece = at % 8;
    uint4 half = make_uint4(0, 0, 0, 0);
    if (piece / 2 <= row / 16) {
      const float4 *x = reinterpret_cast<const float4 *>(&solver[row][8 * piece]);
      const float4 *by = reinterpret_cast<const float4 *>(&gates.strength[8 * piece]);
      half = make_uint4(ft::pack_half(x[0].x * by[0].x, x[0].y * by[0].y),
                        ft::pack_half(x[0].z * by[0].z, x[0].w * by[0].w),
                        ft::pack_half(x[1].x * by[1].x, x[1].y * by[1].y),
                        ft::pack_half(x[1].z * by[1].z, x[1].w * by[1].w));
    }
    *reinterpret_cast<uint4 *>(memory + place(row, piece)) = half;
    *reinterpret_cast<uint4 *>(memory + kSquareBytes + 16 * at) =
        *reinterpret_cast<const uint4 *>(scores + 16 * at);
  }
  if (threadIdx.x < sizeof(Factors) / 16) {
    reinterpret_cast<uint4 *>(memory + 2 * kSquareBytes)[threadIdx.x] =
        reinterpret_cast<const uint4 *>(&gates.factors)[threadIdx.x];
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
  const auto value_head = [&](int member) {
    return args.tiled ? member * key_heads + key_head : key_head * group + member;
  };

  {
    const size_t width =
        2 * size_t(key_heads) * args.dk + size_t(args.value_heads) * args.dv;
    const float *queries = args.qkv + row * width + size_t(key_head) * args.dk;
    const float *keys = queries + size_t(key_heads) * args.dk;
    char *memory = args.keys + (size_t(blockIdx.y) * key_heads + key_head) * kKeyBytes<DK>;
#pragma unroll 1
    for (int n = 16 * warp; n < 16 * warp + 16; n += 8) {
      bring<DK>(room.keys, memory, keys, width, n, count, args.dk, args.eps,
                1.0f);
      bring<DK>(room.keys + kSquareBytes, memory + kSquareBytes, queries, width, n, count,
                args.dk, args.eps, 1.0f / sqrtf(float(args.dk)));
    }
  }
  __syncthreads();

  // Tiles of 8 columns up to the diagonal.
  float kk[8][4] = {}, qk[8][4] = {};
  {
    const uint32_t tile = ft::shared_address(room.keys);
    const uint32_t row_k = tile + pieces_first(lane) + 16 * warp * kRowBytes;
    const uint32_t column = tile + rows_first(lane);
#pragma unroll
    for (int i = 0; i < DK / 16; ++i) {
      const uint32_t line = i / 4 * kLineBytes, at = 32 * (i % 4);
      uint32_t k[4], q[4];
      ft::matrices(k, (row_k ^ at) + line);
      ft::matrices(q, (row_k ^ at) + line + kSquareBytes);
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        if (n > 2 * warp) continue;
        uint32_t b[4];
        ft::matrices(b, (column ^ at) + line + 8 * n * kRowBytes);
        ft::mma<false>(kk[n], k, b[0], b[1]);
        ft::mma<false>(kk[n + 1], k, b[2], b[3]);
        ft::mma<false>(qk[n], q, b[0], b[1]);
        ft::mma<false>(qk[n + 1], q, b[2], b[3]);
      }
    }
  }

#pragma unroll 1
  for (int member = 0; member < group; ++member) {
    if (member % kWarps == 0) {
      if (member > 0) __syncthreads();
      if (member + warp < group) {
        make(room.gates[warp], args, value_head(member + warp), row, count);
      }
    }
    __syncthreads();  // also the last reading of keys and queries, and of the head before
    const Gates &gates = room.gates[member % kWarps];

#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = 16 * warp + 8 * r + g;
      const float2 now = gates.sums[i];
      const float strength = gates.strength[i];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int j = 8 * n + 2 * t;
        uint32_t *to = reinterpret_cast<uint32_t *>(room.scores + place(i, n) + 4 * t);
        if (n > 2 * warp + 1) {
          *to = 0;
          continue;
        }
        const float4 then = *reinterpret_cast<const float4 *>(&gates.sums[j]);
        // Powers of what is past the diagonal could overflow.
        const float first = j <= i ? exp2f((now.x - then.x) + (now.y - then.y)) : 0.0f;
        const float second = j < i ? exp2f((now.x - then.z) + (now.y - then.w)) : 0.0f;
        float2 a;
        a.x = j < i ? strength * kk[n][2 * r] * first : 0.0f;
        a.y = j + 1 < i ? strength * kk[n][2 * r + 1] * second : 0.0f;
        *reinterpret_cast<float2 *>(&room.a[i][j]) = a;
        const float x = j <= i ? qk[n][2 * r] * first : 0.0f;
        const float y = j < i ? qk[n][2 * r + 1] * second : 0.0f;
        *to = ft::pack_half(x, y);
      }
    }
    __syncthreads();
    invert(room.a);
    char *memory = args.heads +
                   (size_t(blockIdx.y) * args.value_heads + value_head(member)) * kHeadBytes;
    leave(memory, room.a, room.scores, gates);
  }
}

}  // namespace

#define FT_GATED_DELTA_CHUNK(DK)                                                              \
  extern "C" __global__ void __launch_bounds__(kThreads, 4) gated_delta_chunk_##DK(           \
      ft::Site site, const int *control, const float *qkv, const float *alpha,                \
      const float *beta, const float *a, const float *dt_bias, char *keys, char *heads,       \
      int first, int capacity, int value_heads, int dk, int dv, int tiled, float eps) {       \
    run<DK>(Args{site, control, qkv, alpha, beta, a, dt_bias, keys, heads, first, capacity,   \
                 value_heads, dk, dv, tiled, eps});                                           \
  }
FT_GATED_DELTA_CHUNK(64)
FT_GATED_DELTA_CHUNK(128)
