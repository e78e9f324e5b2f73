// Chunked gated delta rule, for prompts: outputs and state, chunk after chunk.
//
// Layouts: qkv [M, 2 Hk dk + Hv dv]; state [Hv, dv, dk]; out [M, Hv, dv], all F32; keys and
// heads are what `gated_delta_chunk` left (delta_chunk.cuh). With S the state, transposed
// [dk, dv], K and Q the keys and queries of a chunk, G the sums of its log decays, C the
// solver and P the scores:
//   W = C (V - e^G K S);  out = (e^G Q S + P W) / sqrt(dk);  S = e^G[63] S + (e^(G[63] - G) K)^T W
//
// Launch: grid (columns, Hv), a warp for 16 of a head's dv columns, 1 to 8 warps to a block;
// warps past dv only copy. A warp keeps its columns of the state, [16][DK] in F32, in
// registers: everything is computed transposed, so that what one product leaves in a lane
// is what the lane gives to the next. Chunks' keys and squares come to shared memory, in
// `stages` places; with two, the next chunk comes while the warps work on one.
//
// Products are of numbers in binary16 with sums in F32. A column's values, state and sums go
// in times a power of two where their largest is not between 2^-9 and 2^8. Order of sums: by
// 16 keys or 16 rows of the chunk. Nothing depends on where the call ends, or on warps,
// blocks and stages.
// Bound: tensor cores and shared memory, for a chunk and 16 columns 232 products of 16 by
// 8 by 16 (dk = 128) and 56 KB; chunks come one after the other.

#include "delta_chunk.cuh"

namespace {

using namespace ft::delta;

constexpr unsigned kAll = 0xffffffffu;  // lanes
constexpr int kMostThreads = 256;

struct Args {
  ft::Site site;
  const int *control;
  const float *qkv;
  const char *keys, *heads;
  float *state, *out;
  int first, count, capacity, key_heads, dk, dv, tiled, stages;
};

// A chunk in shared memory.
template <int DK>
struct Stage {
  char keys[kTileBytes<DK>], queries[kTileBytes<DK>];
  char solver[kSquareBytes], scores[kSquareBytes];
  Factors factors;
};

// What a column's values and state are multiplied with: a power of two that brings the
// largest to 2^7 or above, below 2^8, or 1 where that is not needed. Sums and what is
// written reach 2^7 times as much, and are numbers of binary16 still.
__device__ inline float column_factor(float largest) {
  if (largest == 0.0f || (largest >= 0x1p-9f && largest < 0x1p8f)) return 1.0f;
  const int exponent = int(__float_as_uint(largest) >> 23);
  return __uint_as_float(unsigned(min(max(127 + 7 + 127 - exponent, 1), 253)) << 23);
}

// `x` and `y`, 8 columns each of operand A after each other: what a product left as
// C, in binary16.
__device__ inline void operand(uint32_t (&a)[4], const float (&x)[4], const float (&y)[4]) {
  a[0] = ft::pack_half(x[0], x[1]);
  a[1] = ft::pack_half(x[2], x[3]);
  a[2] = ft::pack_half(y[0], y[1]);
  a[3] = ft::pack_half(y[2], y[3]);
}

// `c += a b^T` for the square tile b, whose blocks of 16 by 16 past the diagonal are zeros.
__device__ inline void square(float (&c)[8][4], const uint32_t (&a)[4][4], uint32_t b) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int i = 0; i <= n; ++i) {
      uint32_t x[4];
      ft::matrices(x, (b ^ 32 * i) + 16 * n * 2 * kChunk);
      ft::mma<false>(c[2 * n], a[i], x[0], x[1]);
      ft::mma<false>(c[2 * n + 1], a[i], x[2], x[3]);
    }
  }
}

// A warp's columns.
struct Place {
  int column, live;  // live: rows of the call, none for a warp without columns
  size_t width, out_width;
  const float *values;  // of the lane's first column, in row 0
  float *out;
};

// The values of a chunk as a product leaves them: rows are columns of the operand.
__device__ inline void load(float (&v)[8][4], const Place &place, int chunk, int t) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = kChunk * chunk + 8 * n + 2 * t + r;
      const float *from = place.values + row * place.width;
      v[n][r] = row < place.live ? from[0] : 0.0f;
      v[n][2 + r] = row < place.live ? from[8] : 0.0f;
    }
  }
}

__device__ inline void store(const float (&o)[8][4], const Place &place, int chunk, int t,
                             const float (&by)[2]) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = kChunk * chunk + 8 * n + 2 * t + r;
      if (row >= place.live) continue;
      float *to = place.out + row * place.out_width;
      to[0] = o[n][r] * by[0];
      to[8] = o[n][2 + r] * by[1];
    }
  }
}

template <int DK>
__device__ inline void run(const Args &args) {
  constexpr int kTiles = DK / 8;
  extern __shared__ __align__(256) char shared[];
  const int rows = ft::live_rows(args.site, args.control, args.capacity);
  const int count = min(rows - args.first, args.count);
  if (count <= 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int value_heads = gridDim.y, head = blockIdx.y, group = value_heads / args.key_heads;
  const int key_head = args.tiled ? head % args.key_heads : head / group;

  Place place;
  place.column = 16 * (blockIdx.x * (blockDim.x / 32) + warp);
  place.live = place.column < args.dv ? count : 0;
  place.width = 2 * size_t(args.key_heads) * args.dk + size_t(value_heads) * args.dv;
  place.out_width = size_t(value_heads) * args.dv;
  const size_t at = size_t(head) * args.dv + place.column + g;
  place.values = args.qkv + args.first * place.width + 2 * size_t(args.key_heads) * args.dk + at;
  place.out = args.out + args.first * place.out_width + at;

  const int chunks = (count + kChunk - 1) / kChunk;
  const auto stage = [&](int chunk) {
    return reinterpret_cast<Stage<DK> *>(shared) + (args.stages == 2 ? chunk % 2 : 0);
  };
  const auto bring = [&](int chunk) {
    char *to = reinterpret_cast<char *>(stage(chunk));
    const char *keys = args.keys + (size_t(chunk) * args.key_heads + key_head) * kKeyBytes<DK>;
    const char *squares = args.heads + (size_t(chunk) * value_heads + head) * kHeadBytes;
    const int step = 16 * blockDim.x;
#pragma unroll 4
    for (int i = 16 * threadIdx.x; i < kKeyBytes<DK>; i += step) ft::copy16(to + i, keys + i);
#pragma unroll 4
    for (int i = 16 * threadIdx.x; i < kHeadBytes; i += step) {
      ft::copy16(to + kKeyBytes<DK> + i, squares + i);
    }
    ft::copies_commit();
  };

  bring(0);
  float v[8][4];
  load(v, place, 0, t);
  // Of the lane's columns g and g + 8: elements 8 n + 2 t and the one after.
  float s[kTiles][4];
  float *const memory = args.state + at * args.dk + 2 * t;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float2 x = make_float2(0.0f, 0.0f);
      if (place.live && 8 * n < args.dk) {
        x = *reinterpret_cast<const float2 *>(memory + 8 * r * args.dk + 8 * n);
      }
      s[n][2 * r] = x.x, s[n][2 * r + 1] = x.y;
    }
  }
  const float scale = 1.0f / sqrtf(float(args.dk));

#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    ft::copies_wait<0>();
    __syncthreads();
    if (args.stages == 2 && chunk + 1 < chunks) bring(chunk + 1);
    const Stage<DK> &now = *stage(chunk);

    float by[2], back[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = 0.0f;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        largest = fmaxf(largest, fmaxf(fabsf(v[n][2 * r]), fabsf(v[n][2 * r + 1])));
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        largest = fmaxf(largest, fmaxf(fabsf(s[n][2 * r]), fabsf(s[n][2 * r + 1])));
      }
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 2));
      by[r] = column_factor(largest);
      back[r] = 1.0f / by[r];
    }

    // Of the state before the chunk, what keys and queries find there.
    float o[8][4] = {};
    uint32_t a[4][4];
    {
      float known[8][4] = {};
      const uint32_t keys = ft::shared_address(now.keys) + rows_first<DK>(lane);
#pragma unroll
      for (int i = 0; i < DK / 16; ++i) {
        float x[2][4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          x[0][c] = s[2 * i][c] * by[c / 2];
          x[1][c] = s[2 * i + 1][c] * by[c / 2];
        }
        uint32_t part[4];
        operand(part, x[0], x[1]);
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
          uint32_t b[4];
          ft::matrices(b, (keys ^ 32 * i) + 8 * n * 2 * DK);
          ft::mma<false>(known[n], part, b[0], b[1]);
          ft::mma<false>(known[n + 1], part, b[2], b[3]);
          ft::matrices(b, (keys ^ 32 * i) + 8 * n * 2 * DK + kTileBytes<DK>);
          ft::mma<false>(o[n], part, b[0], b[1]);
          ft::mma<false>(o[n + 1], part, b[2], b[3]);
        }
      }
      // What the rows want to write, were each alone.
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float2 f = *reinterpret_cast<const float2 *>(&now.factors.before[8 * n + 2 * t]);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float before = c % 2 ? f.y : f.x;
          known[n][c] = fmaf(-before, known[n][c], v[n][c] * by[c / 2]);
          o[n][c] *= before;
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) operand(a[i], known[2 * i], known[2 * i + 1]);
    }

    // What they do write, and their outputs.
    float w[8][4] = {};
    square(w, a, ft::shared_address(now.solver) + rows_first<kChunk>(lane));
#pragma unroll
    for (int i = 0; i < 4; ++i) operand(a[i], w[2 * i], w[2 * i + 1]);
    square(o, a, ft::shared_address(now.scores) + rows_first<kChunk>(lane));
    const float last[2] = {scale * back[0], scale * back[1]};
    store(o, place, chunk, t, last);
    if (chunk + 1 < chunks) load(v, place, chunk + 1, t);

    // The state after the chunk.
    const float decay = now.factors.before[kChunk - 1];
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 f = *reinterpret_cast<const float2 *>(&now.factors.after[8 * n + 2 * t]);
#pragma unroll
      for (int c = 0; c < 4; ++c) w[n][c] *= c % 2 ? f.y : f.x;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) operand(a[i], w[2 * i], w[2 * i + 1]);
    const float decays[2] = {decay * by[0], decay * by[1]};
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) s[n][c] *= decays[c / 2];
    }
    const uint32_t keys = ft::shared_address(now.keys) + pieces_first<DK>(lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        uint32_t b[4];
        ft::transposed(b, (keys ^ 16 * n) + 16 * i * 2 * DK);
        ft::mma<false>(s[n], a[i], b[0], b[1]);
        ft::mma<false>(s[n + 1], a[i], b[2], b[3]);
      }
    }
    if (back[0] != 1.0f || back[1] != 1.0f) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 4; ++c) s[n][c] *= back[c / 2];
      }
    }
    if (args.stages == 1 && chunk + 1 < chunks) {
      __syncthreads();
      bring(chunk + 1);
    }
  }

  if (!place.live) return;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (8 * n < args.dk) {
        *reinterpret_cast<float2 *>(memory + 8 * r * args.dk + 8 * n) =
            make_float2(s[n][2 * r], s[n][2 * r + 1]);
      }
    }
  }
}

}  // namespace

#define FT_GATED_DELTA_STATE(DK)                                                               \
  extern "C" __global__ void __launch_bounds__(kMostThreads) gated_delta_state_##DK(           \
      ft::Site site, const int *control, const float *qkv, const char *keys,                   \
      const char *heads, float *state, float *out, int first, int count, int capacity,         \
      int key_heads, int dk, int dv, int tiled, int stages) {                                  \
    run<DK>(Args{site, control, qkv, keys, heads, state, out, first, count, capacity,          \
                 key_heads, dk, dv, tiled, stages});                                           \
  }
FT_GATED_DELTA_STATE(64)
FT_GATED_DELTA_STATE(128)
