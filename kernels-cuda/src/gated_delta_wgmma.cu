// Chunked gated delta rule, for prompts, on sm_90a: outputs and state, chunk after chunk.
//
// The same as gated_delta_state.cu, with products of a warpgroup, whose right operands come
// from shared memory without passing registers.
//
// Launch: grid (dv / 64, rounded up, Hv), 128 threads, a warp for 16 columns; warps past dv
// work on zeros. Chunks come to shared memory by bulk copies, their values by copies of 16
// bytes, in two places. Order of sums: that of the products, by keys and by rows of the chunk.
// Bound: chunks come one after the other, with 32 products of 64 by 64 by 16 (dk = 128) and
// the conversions between them, about 2 us on an H200; the products alone would take a fourth.

#include "delta_columns.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

#include "wgmma.cuh"

namespace {

using namespace ft::delta;
namespace hopper = ft::hopper;

constexpr int kThreads = 128;
constexpr int kColumns = 64;

template <int DK>
struct Place {
  Stage<DK> chunk;
  // Rows are 8 banks apart by twos: a lane's rows are all in other banks.
  float values[kChunk][kColumns + 4];
};

// `c += a b^T` with 64 rows of 16 numbers in shared memory, or with `kAcross` `c += a b` with
// 16 rows of 64. C is in tiles of 8 columns.
template <bool kAcross>
__device__ inline void product(float (*c)[4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, 1, 1, 1, %37;"
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]),
        "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]),
        "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]),
        "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]),
        "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), "+f"(c[6][0]),
        "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]),
        "+f"(c[7][2]), "+f"(c[7][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAcross ? 1 : 0));
}

// Sums that products are done with: nothing of them is read before.
template <int TILES>
__device__ inline void done(float (&c)[TILES][4]) {
#pragma unroll
  for (int n = 0; n < TILES; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(c[n][i])::"memory");
  }
}

template <int DK>
__device__ inline void run(const StateArgs &args) {
  constexpr int kTiles = DK / 8;
  extern __shared__ __align__(1024) char shared[];
  __shared__ alignas(8) uint64_t barriers[2];
  const int rows = ft::live_rows(args.site, args.control, args.capacity);
  const int count = min(rows - args.first, args.count);
  if (count <= 0) return;
  const Columns columns(args, count);
  const int t = columns.t;

  // The swizzle goes by addresses: places lie on multiples of 1024.
  constexpr int kStage = (sizeof(Place<DK>) + 1023) / 1024 * 1024;
  const uint32_t base = hopper::shared_address(shared), skip = -base & 1023;
  const uint32_t first = base + skip, arrived = hopper::shared_address(barriers);
  const int chunks = (count + kChunk - 1) / kChunk;
  const float *const block = columns.values - 16 * columns.warp - columns.g;
  const auto bring = [&](int chunk) {
    const int place = chunk % 2 * kStage;
    if (threadIdx.x == 0) {
      const uint32_t at = arrived + 8 * (chunk % 2);
      hopper::barrier_expect(at, sizeof(Stage<DK>));
      hopper::bulk_load(
          first + place,
          args.keys + (size_t(chunk) * args.key_heads + columns.key_head) * kKeyBytes<DK>,
          kKeyBytes<DK>, at);
      hopper::bulk_load(
          first + place + kKeyBytes<DK>,
          args.heads + (size_t(chunk) * columns.value_heads + columns.head) * kHeadBytes,
          kHeadBytes, at);
    }
    // A thread has four columns of every eighth row.
    float(*to)[kColumns + 4] = reinterpret_cast<Place<DK> *>(shared + skip + place)->values;
    const int row = threadIdx.x / 16, column = threadIdx.x % 16 * 4;
    const bool inside = kColumns * blockIdx.x + column < args.dv;
    const int live = inside ? count - kChunk * chunk : 0;
    const float *from = block + (size_t(kChunk) * chunk + row) * columns.width + column;
#pragma unroll
    for (int i = 0; i < kChunk; i += 8, from += 8 * columns.width) {
      float *at = &to[row + i][column];
      if (row + i < live) {
        ft::copy16(at, from);
      } else {
        *reinterpret_cast<float4 *>(at) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
    }
    ft::copies_commit();
  };
  if (threadIdx.x == 0) {
    hopper::barrier_make(arrived, 1);
    hopper::barrier_make(arrived + 8, 1);
    hopper::barriers_made();
  }
  bring(0);
  float s[kTiles][4];
  columns.load_state(s);

#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    ft::copies_wait<0>();
    __syncthreads();  // the barriers are made, and all have done with the chunk before
    if (chunk + 1 < chunks) bring(chunk + 1);
    hopper::barrier_wait(arrived + 8 * (chunk % 2), chunk / 2 % 2);
    const auto &place =
        *reinterpret_cast<const Place<DK> *>(shared + skip + chunk % 2 * kStage);
    const Stage<DK> &now = place.chunk;
    const float *values = &place.values[2 * t][16 * columns.warp + columns.g];
    // Twice from shared memory: registers are few.
    const auto value = [&](int n, int c) {
      return values[(8 * n + c % 2) * (kColumns + 4) + 8 * (c / 2)];
    };
    const Scale scale(s, value);
    uint32_t found[DK / 16][4];
#pragma unroll
    for (int i = 0; i < DK / 16; ++i) scale.operand(found[i], s[2 * i], s[2 * i + 1]);
    const uint64_t keys = hopper::lines_at(first + chunk % 2 * kStage);
    // Sixteen bytes are a unit of a descriptor's address.
    const uint64_t solver = keys + kKeyBytes<DK> / 16, scores = solver + kSquareBytes / 16;

    // Of the state before the chunk, what keys find there; queries meanwhile, too.
    float known[8][4] = {}, o[8][4] = {};
    hopper::products_fence();
#pragma unroll
    for (int i = 0; i < DK / 16; ++i) {
      product<false>(known, found[i], keys + i / 4 * (kLineBytes / 16) + 2 * (i % 4));
    }
    hopper::products_commit();
#pragma unroll
    for (int i = 0; i < DK / 16; ++i) {
      product<false>(o, found[i],
                     keys + kSquareBytes / 16 + i / 4 * (kLineBytes / 16) + 2 * (i % 4));
    }
    hopper::products_commit();
    hopper::products_wait<1>();
    done(known);
    uint32_t a[4][4];
    wanted(known, value, scale, now.factors.before, t);
    operands(a, known);

    // What rows do write.
    float w[8][4] = {};
    hopper::products_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) product<false>(w, a[i], solver + 2 * i);
    hopper::products_commit();
    hopper::products_wait<0>();
    done(w);
    done(o);
    by_rows(o, now.factors.before, t);
    operands(a, w);
    by_rows(w, now.factors.after, t);
    uint32_t b[4][4];
    operands(b, w);
    scale.forget(s, now.factors.before[kChunk - 1]);

    // The outputs, and the state after the chunk.
    hopper::products_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) product<false>(o, a[i], scores + 2 * i);
    hopper::products_commit();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int line = 0; line < DK / 64; ++line) {
        product<true>(s + 8 * line, b[i],
                      keys + line * (kLineBytes / 16) + i * (16 * kRowBytes / 16));
      }
    }
    hopper::products_commit();
    hopper::products_wait<1>();
    done(o);
    scale.undo(o);
    columns.store(o, chunk);
    hopper::products_wait<0>();
    done(s);
    scale.undo(s);
  }
  columns.store_state(s);
}

}  // namespace

FT_GATED_DELTA_STATE(gated_delta_state_64_sm90a, 64, kThreads)
FT_GATED_DELTA_STATE(gated_delta_state_128_sm90a, 128, kThreads)

#endif
