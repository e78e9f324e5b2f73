// Chunked gated delta rule, for prompts: outputs and state, chunk after chunk.
//
// Layouts: qkv [M, 2 Hk dk + Hv dv]; state [Hv, dv, dk]; out [M, Hv, dv], all F32; keys and
// heads are what `gated_delta_chunk` left (delta_chunk.cuh). With S the state, transposed
// [dk, dv], K and Q the keys and queries of a chunk, G the sums of its log decays, C the
// solver and P the scores:
//   W = C (V - e^G K S);  out = e^G Q S + P W;  S = e^G[63] S + (e^(G[63] - G) K)^T W
//
// Launch: grid (columns, Hv), a warp for 16 of a head's dv columns, 1 to 8 warps to a block;
// warps past dv only copy. A warp keeps its columns of the state, [16][DK] in F32, in
// registers, transposed (delta_columns.cuh). Chunks' keys and squares come to shared memory,
// in `stages` places; with two, the next chunk comes while the warps work on one.
//
// Products are of numbers in binary16 with sums in F32. A column's values, state and sums go
// in times a power of two where their largest is not between 2^-9 and 2^8. Order of sums: by
// 16 keys or 16 rows of the chunk. Nothing depends on where the call ends, or on warps,
// blocks and stages.
// Bound: tensor cores and shared memory, for a chunk and 16 columns 232 products of 16 by
// 8 by 16 (dk = 128) and 56 KB; chunks come one after the other. `gated_delta_wgmma.cu` is
// the same for sm_90a.

#include "delta_columns.cuh"

namespace {

using namespace ft::delta;

constexpr int kMostThreads = 256;

// `c += a b^T` for the square tile b, whose blocks of 16 by 16 past the diagonal are zeros.
__device__ inline void square(float (&c)[8][4], const uint32_t (&a)[4][4], uint32_t b) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int i = 0; i <= n; ++i) {
      uint32_t x[4];
      ft::matrices(x, (b ^ 32 * i) + 16 * n * kRowBytes);
      ft::mma<false>(c[2 * n], a[i], x[0], x[1]);
      ft::mma<false>(c[2 * n + 1], a[i], x[2], x[3]);
    }
  }
}

template <int DK>
__device__ inline void run(const StateArgs &args) {
  constexpr int kTiles = DK / 8;
  extern __shared__ __align__(1024) char shared[];
  const int rows = ft::live_rows(args.site, args.control, args.capacity);
  const int count = min(rows - args.first, args.count);
  if (count <= 0) return;
  const Columns columns(args, count);
  const int lane = columns.lane, t = columns.t;

  const int chunks = (count + kChunk - 1) / kChunk;
  const auto stage = [&](int chunk) {
    return reinterpret_cast<Stage<DK> *>(shared) + (args.stages == 2 ? chunk % 2 : 0);
  };
  const auto bring = [&](int chunk) {
    char *to = reinterpret_cast<char *>(stage(chunk));
    const char *keys =
        args.keys + (size_t(chunk) * args.key_heads + columns.key_head) * kKeyBytes<DK>;
    const char *squares =
        args.heads + (size_t(chunk) * columns.value_heads + columns.head) * kHeadBytes;
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
  float v[8][4], s[kTiles][4];
  columns.load(v, 0);
  columns.load_state(s);

#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    ft::copies_wait<0>();
    __syncthreads();
    if (args.stages == 2 && chunk + 1 < chunks) bring(chunk + 1);
    const Stage<DK> &now = *stage(chunk);
    const auto value = [&](int n, int c) { return v[n][c]; };
    const Scale scale(s, value);

    // Of the state before the chunk, what keys and queries find there.
    float o[8][4] = {};
    uint32_t a[4][4];
    {
      float known[8][4] = {};
      const uint32_t keys = ft::shared_address(now.keys) + rows_first(lane);
#pragma unroll
      for (int i = 0; i < DK / 16; ++i) {
        uint32_t part[4];
        scale.operand(part, s[2 * i], s[2 * i + 1]);
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
          const uint32_t at = (keys ^ 32 * (i % 4)) + i / 4 * kLineBytes + 8 * n * kRowBytes;
          uint32_t b[4];
          ft::matrices(b, at);
          ft::mma<false>(known[n], part, b[0], b[1]);
          ft::mma<false>(known[n + 1], part, b[2], b[3]);
          ft::matrices(b, at + kSquareBytes);
          ft::mma<false>(o[n], part, b[0], b[1]);
          ft::mma<false>(o[n + 1], part, b[2], b[3]);
        }
      }
      wanted(known, value, scale, now.factors.before, t);
      operands(a, known);
    }
    by_rows(o, now.factors.before, t);

    // What rows do write, and their outputs.
    float w[8][4] = {};
    square(w, a, ft::shared_address(now.solver) + rows_first(lane));
    operands(a, w);
    square(o, a, ft::shared_address(now.scores) + rows_first(lane));
    scale.undo(o);
    columns.store(o, chunk);
    if (chunk + 1 < chunks) columns.load(v, chunk + 1);

    // The state after the chunk.
    by_rows(w, now.factors.after, t);
    operands(a, w);
    scale.forget(s, now.factors.before[kChunk - 1]);
    const uint32_t keys = ft::shared_address(now.keys) + pieces_first(lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        uint32_t b[4];
        ft::transposed(b, (keys ^ 16 * (n % 8)) + n / 8 * kLineBytes + 16 * i * kRowBytes);
        ft::mma<false>(s[n], a[i], b[0], b[1]);
        ft::mma<false>(s[n + 1], a[i], b[2], b[3]);
      }
    }
    scale.undo(s);
    if (args.stages == 1 && chunk + 1 < chunks) {
      __syncthreads();
      bring(chunk + 1);
    }
  }
  columns.store_state(s);
}

}  // namespace

FT_GATED_DELTA_STATE(gated_delta_state_64, 64, kMostThreads)
FT_GATED_DELTA_STATE(gated_delta_state_128, 128, kMostThreads)
