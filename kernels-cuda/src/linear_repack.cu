// Weights as they are stored to bricks (brick.cuh), and what a matrix's values reach.
//
// `linear_limits_TYPE`: limits[0] = the largest magnitude of a scale of the matrix (of a
// block's own factor too), limits[1] = of an offset's factor, as float bits: what is not
// finite is larger than all that is. Zero before.
// `linear_repack_TYPE`: multiplies factors by `up`, a power of two for which they stay in
// f16 (Q4_K and Q5_K offsets: by 4 up), and lays codes out anew. Exact but where a factor
// falls below the normal f16, which is 2^-25 of the largest value at most.
//
// Grid: a warp to a brick (repack), a thread to a block (limits); 256 threads. Read and
// written once: bound by memory, in practice by address arithmetic.

#include "brick.cuh"
#include "fault.cuh"
#include "quant.cuh"

namespace {

using namespace ft::brick;

struct Source {
  const uint8_t *stored;
  int64_t row_bytes;
  int n, k;
};

// The block of `Type` that holds input `at` of a row; none outside the matrix.
template <class Type>
__device__ const uint8_t *block_of(const Source &s, int row, int at) {
  if (row >= s.n || at >= s.k) return nullptr;
  return s.stored + row * s.row_bytes + static_cast<int64_t>(at / Type::kElements) * Type::kBytes;
}

template <class Type>
__device__ uint32_t code_of(const Source &s, int row, int at) {
  const uint8_t *block = block_of<Type>(s, row, at);
  return block ? Type::code(block, at % Type::kElements) : 0;
}

__device__ uint32_t scaled_half(const uint8_t *factor, float up) {
  if (!factor) return 0;
  const float value = ft::quant::half_at(factor, 0) * up;
  return __half_as_ushort(__float2half_rn(value));
}

// The codes of a product: inputs at..at + 3 of rows g and g + 8; the lowest `bits` of each
// after `shift`, those of row g at bit `low`, of row g + 8 at bit `high` of the halves.
template <class Type>
__device__ uint32_t product(const Source &s, int row, int at, int shift, int mask, int low,
                            int high) {
  uint32_t even = 0, odd = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint32_t x = code_of<Type>(s, row, at + i) >> shift & mask;
    const uint32_t y = code_of<Type>(s, row + 8, at + i) >> shift & mask;
    const uint32_t both = (x << low | y << high) << i / 2 * 16;
    (i % 2 ? odd : even) |= both;
  }
  return even | __byte_perm(odd, 0, kSwapBytes);
}

// Where the inputs of a lane begin in product `i` of pair `w`.
__device__ int input_of(int unit, int t, int w, int i) { return unit * 256 + 64 * t + 4 * w + 32 * i; }

template <class Type>
__device__ void pack_codes(const Source &s, uint8_t *to, int row, int unit, int lane) {
  const int t = lane % 4;
#pragma unroll
  for (int v = 0; v < 4; v++) {
    uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      words[j] = product<Type>(s, row, input_of(unit, t, 2 * v + j / 2, j % 2), 0, 15, 2, 6);
    }
    *reinterpret_cast<uint4 *>(to + v * 512 + lane * 16) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// Heads of Q4_K and Q5_K.
template <class Type>
__device__ void pack_six(const Source &s, uint8_t *brick, int row, int unit, int lane, float up) {
  const int t = lane % 4;
  uint32_t scales[4] = {}, mins[4] = {};
  for (int i = 0; i < 2; i++) {
    const uint8_t *block = block_of<Type>(s, row + 8 * i, unit * 256);
    if (t == 0) {
      const uint32_t d = scaled_half(block, up);
      const uint32_t m = scaled_half(block ? block + 2 : nullptr, -4.0f * up);
      reinterpret_cast<uint32_t *>(brick + lane / 4 * 8)[i] = d | m << 16;
    }
    for (int j = 0; j < 2 && block; j++) {
      scales[2 * i + j] = ft::quant::six_bit_scale(block + 4, 2 * t + j);
      mins[2 * i + j] = ft::quant::six_bit_min(block + 4, 2 * t + j);
    }
  }
  auto first = [](const uint32_t(&x)[4]) { return x[0] | x[1] << 6 | (x[2] & 15) << 12; };
  auto second = [](const uint32_t(&x)[4]) { return x[2] >> 4 | x[3] << 2; };
  *reinterpret_cast<uint32_t *>(brick + 64 + lane * 4) = first(scales) | first(mins) << 16;
  *reinterpret_cast<uint16_t *>(brick + 192 + lane * 2) =
      static_cast<uint16_t>(second(scales) | second(mins) << 8);
}

struct PackQ4_K {
  using Brick = Q4_K;
  __device__ static void pack(const Source &s, uint8_t *brick, int row, int unit, int lane,
                              float up) {
    pack_six<ft::quant::Q4_K>(s, brick, row, unit, lane, up);
    pack_codes<ft::quant::Q4_K>(s, brick + 256, row, unit, lane);
  }
};

struct PackQ5_K {
  using Brick = Q5_K;
  __device__ static void pack(const Source &s, uint8_t *brick, int row, int unit, int lane,
                              float up) {
    using Type = ft::quant::Q5_K;
    pack_six<Type>(s, brick, row, unit, lane, up);
    pack_codes<Type>(s, brick + 256, row, unit, lane);
    for (int v = 0; v < 4; v++) {
      uint32_t word = 0;
      for (int j = 0; j < 4; j++) {
        const int at = input_of(unit, lane % 4, 2 * v + j / 2, j % 2);
        word |= product<Type>(s, row, at, 4, 1, 6 + j, 10 + j);
      }
      *reinterpret_cast<uint32_t *>(brick + 2304 + v * 128 + lane * 4) = word;
    }
  }
};

struct PackQ6_K {
  using Brick = Q6_K;
  __device__ static void pack(const Source &s, uint8_t *brick, int row, int unit, int lane,
                              float up) {
    using Type = ft::quant::Q6_K;
    const int t = lane % 4;
    for (int i = 0; i < 2; i++) {
      const uint8_t *block = block_of<Type>(s, row + 8 * i, unit * 256);
      uint32_t word = 0;
      for (int j = 0; j < 4 && block; j++) word |= uint32_t{block[192 + 4 * t + j]} << 8 * j;
      reinterpret_cast<uint32_t *>(brick + lane * 8)[i] = word;
      if (t == 0) {
        reinterpret_cast<uint16_t *>(brick + 256 + lane / 4 * 4)[i] =
            static_cast<uint16_t>(scaled_half(block ? block + 208 : nullptr, up));
      }
    }
    pack_codes<Type>(s, brick + 288, row, unit, lane);
    for (int w = 0; w < 8; w++) {
      uint32_t word = 0;
      // Registers 0..3 of a product: row g, row g + 8 of inputs 0 and 2, then of 1 and 3.
      for (int i = 0; i < 8; i++) {
        const int at = input_of(unit, t, w, i / 4) + i % 4 / 2, from = row + 8 * (i % 2);
        const uint32_t low = code_of<Type>(s, from, at) >> 4;
        const uint32_t high = code_of<Type>(s, from, at + 2) >> 4;
        word |= (low | high << 16) << (6 + 2 * i) % 16;
      }
      *reinterpret_cast<uint32_t *>(brick + 2336 + w / 2 * 256 + lane * 8 + w % 2 * 4) = word;
    }
  }
};

struct PackQ8_0 {
  using Brick = Q8_0;
  __device__ static void pack(const Source &s, uint8_t *brick, int row, int unit, int lane,
                              float up) {
    using Type = ft::quant::Q8_0;
    const int t = lane % 4;
    for (int i = 0; i < 4; i++) {
      const uint8_t *block = block_of<Type>(s, row + i / 2 * 8, unit * 256 + 64 * t + i % 2 * 32);
      reinterpret_cast<uint16_t *>(brick + lane * 8)[i] =
          static_cast<uint16_t>(scaled_half(block, up));
    }
    for (int w = 0; w < 8; w++) {
      uint32_t words[4] = {};
      for (int i = 0; i < 16; i++) {
        const int at = input_of(unit, t, w, i / 8) + i % 4;
        words[i / 4] |= code_of<Type>(s, row + i / 4 % 2 * 8, at) << i % 4 * 8;
      }
      *reinterpret_cast<uint4 *>(brick + 256 + w * 512 + lane * 16) =
          make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
};

// F16 and BF16 as they are; kToHalf makes f16 of BF16.
template <bool kToHalf>
struct PackScalars {
  using Brick = Scalars<false>;
  __device__ static void pack(const Source &s, uint8_t *brick, int row, int unit, int lane,
                              float up) {
    auto value = [&](int from, int at) -> uint32_t {
      if (from >= s.n || at >= s.k) return 0;
      const uint8_t *place = s.stored + from * s.row_bytes + 2 * static_cast<int64_t>(at);
      const uint16_t bits = *reinterpret_cast<const uint16_t *>(place);
      if (!kToHalf) return bits;
      return __half_as_ushort(__float2half_rn(ft::quant::bfloat_to_float(bits) * up));
    };
    for (int i = 0; i < 8; i++) {  // pair, then product
      const int at = unit * 128 + i / 2 * 32 + 8 * (lane % 4) + i % 2 * 4;
      uint32_t words[4];
      for (int r = 0; r < 4; r++) {
        const int from = row + r % 2 * 8, first = at + r / 2 * 2;
        words[r] = value(from, first) | value(from, first + 1) << 16;
      }
      *reinterpret_cast<uint4 *>(brick + i * 512 + lane * 16) =
          make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
};

template <class Pack>
__device__ void repack(const Source &s, float up, uint8_t *bricks) {
  using Brick = typename Pack::Brick;
  const int units = (s.k + Brick::kUnit - 1) / Brick::kUnit, lane = threadIdx.x % 32;
  const int64_t brick = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  const int tile = static_cast<int>(brick / units), unit = static_cast<int>(brick % units);
  if (tile * 16 >= s.n) return;
  Pack::pack(s, bricks + brick * Brick::kBytes, tile * 16 + lane / 4, unit, lane, up);
}

// The larger as bits: magnitudes, then infinity, then what is not a number.
__device__ uint32_t larger(uint32_t a, float b) { return max(a, __float_as_uint(fabsf(b))); }

template <class Type>
struct BlockLimits {
  static constexpr int kElements = Type::kElements;
  __device__ static void read(const uint8_t *block, uint32_t (&limits)[2]) {
    for (int sub = 0; sub < Type::kElements / Type::kSub; sub++) {
      limits[0] = larger(limits[0], Type::scale(block, sub));
    }
    const int factor = Type::kBytes == 210 ? 208 : 0;
    limits[0] = larger(limits[0], ft::quant::half_at(block, factor));
    if constexpr (!Type::kCentred) limits[1] = larger(limits[1], ft::quant::half_at(block, 2));
  }
  static constexpr int kBytes = Type::kBytes;
};

struct BfloatLimits {
  static constexpr int kElements = 1, kBytes = 2;
  __device__ static void read(const uint8_t *at, uint32_t (&limits)[2]) {
    const uint16_t bits = *reinterpret_cast<const uint16_t *>(at);
    limits[0] = larger(limits[0], ft::quant::bfloat_to_float(bits));
  }
};

template <class Limits>
__device__ void find_limits(const Source &s, unsigned *limits) {
  const int64_t per_row = (s.k + Limits::kElements - 1) / Limits::kElements;
  uint32_t mine[2] = {};
  const int64_t all = per_row * s.n, step = static_cast<int64_t>(gridDim.x) * 256;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x; i < all; i += step) {
    Limits::read(s.stored + i / per_row * s.row_bytes + i % per_row * Limits::kBytes, mine);
  }
  for (int j = 0; j < 2; j++) {
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      mine[j] = max(mine[j], __shfl_xor_sync(0xFFFFFFFFu, mine[j], lanes));
    }
    if (threadIdx.x % 32 == 0) atomicMax(limits + j, mine[j]);
  }
}

}  // namespace

#define FT_REPACK(type, Pack)                                                                  \
  extern "C" __global__ __launch_bounds__(256) void linear_repack_##type(                      \
      ft::Site, const uint8_t *stored, long long row_bytes, int n, int k, float up,            \
      uint8_t *bricks) {                                                                       \
    repack<Pack>(Source{stored, row_bytes, n, k}, up, bricks);                                 \
  }

#define FT_LIMITS(type, Limits)                                                                \
  extern "C" __global__ __launch_bounds__(256) void linear_limits_##type(                      \
      ft::Site, const uint8_t *stored, long long row_bytes, int n, int k, unsigned *limits) {  \
    find_limits<Limits>(Source{stored, row_bytes, n, k}, limits);                              \
  }

FT_REPACK(q4_k, PackQ4_K)
FT_REPACK(q5_k, PackQ5_K)
FT_REPACK(q6_k, PackQ6_K)
FT_REPACK(q8_0, PackQ8_0)
FT_REPACK(f16, PackScalars<false>)
FT_REPACK(bf16, PackScalars<!ft::kModern>)

FT_LIMITS(q4_k, BlockLimits<ft::quant::Q4_K>)
FT_LIMITS(q5_k, BlockLimits<ft::quant::Q5_K>)
FT_LIMITS(q6_k, BlockLimits<ft::quant::Q6_K>)
FT_LIMITS(q8_0, BlockLimits<ft::quant::Q8_0>)
FT_LIMITS(bf16, BfloatLimits)
