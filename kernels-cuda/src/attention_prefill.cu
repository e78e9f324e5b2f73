// Causal attention of many rows on tensor cores: prefill over a cache of binary16 or
// bfloat16, heads of 64, 128 or 256 values.
//
// Layouts: as in attention.cu. q [M, Hq, q_stride] F32; k, v [context, Hkv, d]; out
// [M, Hq, d] F32. Query head h reads key-value head h / group.
//
// Launch: a block of 128 threads for 64 rows of one query head, heads of a key-value head
// next to each other, the last rows first: they see most. A warp has 16 rows, its sums of
// values in registers.
//
// Order: keys ascend in steps of 32 from position 0. In a step, scores are sums over d in
// ascending groups of 16, of each the low parts of the queries before the high ones; their
// maximum joins that of the steps before, which sums of probabilities and of values are
// brought under; values are added in two groups of 16 keys, of each the low parts first.
// Sums of probabilities: keys of the same two columns of every eight in a lane, then the
// four lanes. Steps that a row does not see change nothing, so its bits depend on its own
// position alone, not on the rows of the call.
//
// Error: products are exact to 2^-22 (bfloat16: 2^-17) of their terms. Sums of values add
// up as tensor cores do, which cut off what is below a float's last bit: 2^-24 of the sum
// for every 8 keys at worst.
//
// Bound: tensor cores, 8 d for each query and key (two parts, two products).

#include "attention_mma.cuh"

namespace {

using namespace ft::attention;

constexpr int kThreads = 128;
constexpr int kWarpRows = 16;
constexpr int kRows = kThreads / 32 * kWarpRows;
constexpr int kKeys = 32;
constexpr int kStages = ft::kModern ? 2 : 1;

// Groups of 16 elements of a query whose high parts stay in registers. Where two blocks
// have room for the other ones in shared memory, products of the largest heads have more
// registers to work ahead in. ops/attention/tensor.rs of the driver knows the same.
template <int D>
__host__ __device__ constexpr int held() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
  return D == 256 ? 8 : D / 16;
#else
  return D / 16;
#endif
}

struct Args {
  ft::Site site;
  const int *control;
  const float *q;
  const char *k, *v;
  float *out;
  int capacity, context, kv_heads, group, q_stride;
  float scale;
};

// 16 rows of queries in a warp as operands of products: high parts in registers as far as
// they are held, in shared memory after the low parts else. Rows lie on multiples of 16 bytes.
template <int D, bool kBfloat>
__device__ inline void take_queries(const float *low_row, const float *high_row,
                                    uint32_t (&high)[held<D>()][4], uint4 *low,
                                    float factors[2]) {
  const int t = threadIdx.x % 4;
  const float *const rows[2] = {low_row, high_row};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      const float2 x = *reinterpret_cast<const float2 *>(rows[r] + 8 * i + 2 * t);
      largest = fmaxf(largest, fmaxf(fabsf(x.x), fabsf(x.y)));
    }
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
    factors[r] = query_factor(largest);
  }
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    uint32_t first[4], rest[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 x =
          *reinterpret_cast<const float2 *>(rows[j % 2] + 16 * i + 8 * (j / 2) + 2 * t);
      const float factor = factors[j % 2];
      two_parts<kBfloat>(__fmul_rn(x.x, factor), __fmul_rn(x.y, factor), first[j], rest[j]);
      if (i < held<D>()) high[i][j] = first[j];
    }
    low[32 * i] = make_uint4(rest[0], rest[1], rest[2], rest[3]);
    if (i >= held<D>()) {
      low[32 * (D / 16 + i - held<D>())] = make_uint4(first[0], first[1], first[2], first[3]);
    }
  }
}

// A block's query head and its first row: worked out anew for each who asks, not kept.
struct Place {
  int head, first;
  __device__ Place(const Args &args, int q_heads) {
    int number;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(number));
    const int blocks = (args.capacity + kRows - 1) / kRows;
    head = number % q_heads;
    first = (blocks - 1 - number / q_heads) * kRows;
  }
};

// What is wanted now and then: in shared memory, since registers have other things to hold,
// and behind the tiles, whose places are exclusive ors of addresses; on sm_75, whose shared
// memory is full, in registers.
struct Kept {
  int live;          // rows that there are, of the block's first one on
  int head_bytes;    // where the head's keys lie in a slot
  int before, keys;  // that the first row sees before itself, that the last one sees
  float unit[ft::kModern ? kRows : 2];  // of scores, in log2
};

template <int D, bool kBfloatK, bool kBfloatV>
__device__ inline void prefill(const Args &args) {
  extern __shared__ uint4 shared[];
  constexpr int kTile = kKeys * Tile<D>::kRowBytes;

  ft::Call call{0, 0, ft::kCausal, 0};
  if (!ft::read_call(args.site, args.control, args.capacity, args.context, call)) return;
  const int q_heads = args.kv_heads * args.group;
  const Place place(args, q_heads);
  if (place.first >= call.rows) return;
  constexpr int kHeld = held<D>(), kStored = 2 * (D / 16) - kHeld;
  char *const tiles = reinterpret_cast<char *>(shared + 4 * kStored * 32);  // K, V; stages
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  Kept kept;
#else
  Kept &kept = *reinterpret_cast<Kept *>(tiles + kStages * 2 * kTile);
  // ops/attention/tensor.rs of the driver knows the same.
  static_assert(sizeof(Kept) <= 320, "");
#endif
  if (!ft::kModern || threadIdx.x == 0) {
    kept.live = call.rows - place.first;
    kept.head_bytes = 2 * (place.head / args.group) * D;
    kept.before = call.before + place.first;
    kept.keys = kept.before + min(kept.live, kRows);
  }
  if (ft::kModern) __syncthreads();

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_row = place.first + warp * kWarpRows;
  const int rows[2] = {warp_row + g, warp_row + g + 8};
  // Rows past the last stand in for it. The driver sees to it that 31 bits count queries.
  auto query = [&](int row) {
    const unsigned number = unsigned(min(row, call.rows - 1)) * q_heads + place.head;
    return args.q + size_t(number) * args.q_stride;
  };
  uint32_t high[kHeld][4];
  uint4 *const low = shared + warp * kStored * 32 + lane;
  float factors[2];
  take_queries<D, kBfloatK>(query(rows[0]), query(rows[1]), high, low, factors);
  // Scores in units of log2, from products of the raised queries.
  float *const low_unit = kept.unit + (ft::kModern ? warp * kWarpRows + g : 0);
  float *const high_unit = low_unit + (ft::kModern ? 8 : 1);
  if (!ft::kModern || t == 0) {
    const float base = __fmul_rn(args.scale, kLog2e);
    *low_unit = __fdiv_rn(base, factors[0]), *high_unit = __fdiv_rn(base, factors[1]);
  }

  const int slot_bytes = 2 * args.kv_heads * D;
  const Copier<D, kThreads> copier;
  long long from = copier.offset(0, slot_bytes, kept.head_bytes);
  auto load = [&](int first) {
    char *to = tiles + first / kKeys % kStages * 2 * kTile;
    copier.template copy<kKeys>(to, args.k + from, slot_bytes, kept.keys - first);
    copier.template copy<kKeys>(to + kTile, args.v + from, slot_bytes, kept.keys - first);
    from += kKeys * (long long)slot_bytes;
  };
  if constexpr (kStages > 1) load(0);
  ft::copies_commit();

  float sums[D / 8][4];
#pragma unroll
  for (int i = 0; i < D / 8; ++i) sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0.0f;
  float top[2] = {-INFINITY, -INFINITY}, total[2] = {0.0f, 0.0f};

  // Of the matrices of a load, this lane's row and piece.
  const uint32_t k_at = Tile<D>::place(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const uint32_t v_at = kTile + Tile<D>::place(lane % 16, lane / 16);
#pragma unroll 1
  for (int first = 0; first < kept.keys; first += kKeys) {
    ft::copies_wait<0>();
    __syncthreads();
    if constexpr (kStages > 1) {
      if (first + kKeys < kept.keys) load(first + kKeys);
      ft::copies_commit();
    } else {
      load(first);
      __syncthreads();
    }
    const int warp_first = kept.before + warp * kWarpRows;
    if (first >= warp_first + kWarpRows || warp * kWarpRows >= kept.live) continue;
    const uint32_t tile = shared_address(tiles) + first / kKeys % kStages * 2 * kTile;
    const uint32_t k_tile = tile + k_at, v_tile = tile + v_at;

    float scores[kKeys / 8][4];
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      scores[j][0] = scores[j][1] = scores[j][2] = scores[j][3] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < D / 16; ++i) {
      uint32_t first[4], rest[4];
      *reinterpret_cast<uint4 *>(rest) = low[32 * i];
      if (i < kHeld) {
#pragma unroll
        for (int j = 0; j < 4; ++j) first[j] = high[i][j];
      } else {
        *reinterpret_cast<uint4 *>(first) = low[32 * (D / 16 + i - kHeld)];
      }
      // Four products with sums of their own follow each other: none waits for the last.
      uint32_t key[kKeys / 16][4];
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        matrices(key[j], (k_tile ^ 32 * i) + 16 * j * Tile<D>::kRowBytes);
      }
#pragma unroll
      for (int part = 0; part < 2; ++part) {
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
          const uint32_t *four = &key[j / 2][j % 2 * 2];
          if (part == 0) ft::mma<kBfloatK>(scores[j], rest, four[0], four[1]);
          if (part == 1) ft::mma<kBfloatK>(scores[j], first, four[0], four[1]);
        }
      }
    }

    const bool whole = first + kKeys - 1 <= warp_first;
    const int limit = warp_first + g - first - 2 * t;  // last key seen by row g
    const float unit[2] = {*low_unit, *high_unit};
    float now[2] = {top[0], top[1]};
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float x = __fmul_rn(scores[j][c], unit[c / 2]);
        if (!whole && 8 * j + c % 2 - 8 * (c / 2) > limit) x = -INFINITY;
        scores[j][c] = x;
        now[c / 2] = fmaxf(now[c / 2], x);
      }
    }
    float before[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      now[r] = fmaxf(now[r], __shfl_xor_sync(~0u, now[r], 1));
      now[r] = fmaxf(now[r], __shfl_xor_sync(~0u, now[r], 2));
      before[r] = exp2_fast(top[r] - now[r]);
      top[r] = now[r];
      total[r] = __fmul_rn(total[r], before[r]);
    }
    // A factor of 1 changes nothing.
    if (__any_sync(~0u, before[0] != 1.0f || before[1] != 1.0f)) {
#pragma unroll
      for (int i = 0; i < D / 8; ++i) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[i][c] = __fmul_rn(sums[i][c], before[c / 2]);
      }
    }
    uint32_t p_high[kKeys / 16][4], p_low[kKeys / 16][4];
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float zero = top[r] - kRaise;
        const float x = exp2_fast(scores[j][2 * r] - zero);
        const float y = exp2_fast(scores[j][2 * r + 1] - zero);
        total[r] = __fadd_rn(total[r], __fadd_rn(x, y));
        two_parts<kBfloatV>(x, y, p_high[j / 2][2 * (j % 2) + r], p_low[j / 2][2 * (j % 2) + r]);
      }
    }
#pragma unroll
    for (int i = 0; i < D / 16; i += 2) {
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        // Nothing is loaded across it: so much ahead there would not be registers for.
        if (kHeld < D / 16 && i % 4 == 0 && j == 0) __syncwarp();
        uint32_t value[2][4];
        transposed(value[0], (v_tile ^ 32 * i) + 16 * j * Tile<D>::kRowBytes);
        transposed(value[1], (v_tile ^ 32 * (i + 1)) + 16 * j * Tile<D>::kRowBytes);
#pragma unroll
        for (int part = 0; part < 2; ++part) {
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            const uint32_t *four = &value[n / 2][n % 2 * 2];
            if (part == 0) ft::mma<kBfloatV>(sums[2 * i + n], p_low[j], four[0], four[1]);
            if (part == 1) ft::mma<kBfloatV>(sums[2 * i + n], p_high[j], four[0], four[1]);
          }
        }
      }
    }
  }

  const Place end(args, q_heads);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    total[r] = __fadd_rn(total[r], __shfl_xor_sync(~0u, total[r], 1));
    total[r] = __fadd_rn(total[r], __shfl_xor_sync(~0u, total[r], 2));
    const int row = warp * kWarpRows + g + 8 * r;
    if (row >= kept.live) continue;
    const float factor = 1.0f / total[r];
    const unsigned number = unsigned(end.first + row) * q_heads + end.head;
    float *to = args.out + size_t(number) * D + 2 * t;
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      *reinterpret_cast<float2 *>(to + 8 * i) = make_float2(
          __fmul_rn(sums[i][2 * r], factor), __fmul_rn(sums[i][2 * r + 1], factor));
    }
  }
}

}  // namespace

#define FT_PREFILL(NAME, D, BFLOAT_K, BFLOAT_V)                                              \
  extern "C" __global__ void __launch_bounds__(kThreads, 2) NAME(                            \
      ft::Site site, const int *control, const float *q, const char *k, const char *v,       \
      float *out, int capacity, int context, int kv_heads, int group, int q_stride,          \
      float scale) {                                                                         \
    prefill<D, BFLOAT_K, BFLOAT_V>(Args{site, control, q, k, v, out, capacity, context,      \
                                        kv_heads, group, q_stride, scale});                  \
  }
FT_PREFILL(attention_prefill_64, 64, false, false)
FT_PREFILL(attention_prefill_128, 128, false, false)
FT_PREFILL(attention_prefill_256, 256, false, false)
// Products of bfloat16 are there from sm_80 on.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
FT_PREFILL(attention_prefill_64_fb_sm80, 64, false, true)
FT_PREFILL(attention_prefill_128_fb_sm80, 128, false, true)
FT_PREFILL(attention_prefill_256_fb_sm80, 256, false, true)
FT_PREFILL(attention_prefill_64_bf_sm80, 64, true, false)
FT_PREFILL(attention_prefill_128_bf_sm80, 128, true, false)
FT_PREFILL(attention_prefill_256_bf_sm80, 256, true, false)
FT_PREFILL(attention_prefill_64_bb_sm80, 64, true, true)
FT_PREFILL(attention_prefill_128_bb_sm80, 128, true, true)
FT_PREFILL(attention_prefill_256_bb_sm80, 256, true, true)
#endif
