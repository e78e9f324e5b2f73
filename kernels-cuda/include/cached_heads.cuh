// Keys and values of a cache as floats.
#pragma once

namespace ft::attention {

// Types of a cache, the numbers of ops/attention.rs.
enum Type : int { kF32 = 0, kF16 = 1, kBF16 = 2 };

__device__ inline float f16(unsigned short x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}

__device__ inline float bf16(unsigned x) { return __uint_as_float(x << 16); }

// Values of one type as floats: one, or N that lie on a multiple of their size.
template <int TYPE>
struct Cache;

template <>
struct Cache<kF32> {
  const float *at;
  __device__ explicit Cache(const void *memory) : at(static_cast<const float *>(memory)) {}
  __device__ float one(size_t i) const { return at[i]; }
  template <int N>
  __device__ void many(float (&x)[N], size_t i) const {
    if constexpr (N == 2) {
      const float2 y = *reinterpret_cast<const float2 *>(at + i);
      x[0] = y.x, x[1] = y.y;
    } else {
#pragma unroll
      for (int n = 0; n < N; n += 4) {
        const float4 y = *reinterpret_cast<const float4 *>(at + i + n);
        x[n] = y.x, x[n + 1] = y.y, x[n + 2] = y.z, x[n + 3] = y.w;
      }
    }
  }
};

template <int TYPE>
struct Cache16 {
  const unsigned short *at;
  __device__ explicit Cache16(const void *memory)
      : at(static_cast<const unsigned short *>(memory)) {}
  __device__ static float value(unsigned x) {
    return TYPE == kF16 ? f16(static_cast<unsigned short>(x)) : bf16(x);
  }
  __device__ float one(size_t i) const { return value(at[i]); }
  template <int N>
  __device__ void many(float (&x)[N], size_t i) const {
    unsigned words[N / 2];
    if constexpr (N == 2) {
      words[0] = *reinterpret_cast<const unsigned *>(at + i);
    } else if constexpr (N == 4) {
      const uint2 y = *reinterpret_cast<const uint2 *>(at + i);
      words[0] = y.x, words[1] = y.y;
    } else {
      static_assert(N == 8, "");
      const uint4 y = *reinterpret_cast<const uint4 *>(at + i);
      words[0] = y.x, words[1] = y.y, words[2] = y.z, words[3] = y.w;
    }
#pragma unroll
    for (int n = 0; n < N / 2; ++n) {
      x[2 * n] = value(words[n] & 0xffff);
      x[2 * n + 1] = value(words[n] >> 16);
    }
  }
};
template <>
struct Cache<kF16> : Cache16<kF16> {
  using Cache16::Cache16;
};
template <>
struct Cache<kBF16> : Cache16<kBF16> {
  using Cache16::Cache16;
};

// Where the heads of a cache's slots are: those of one key-value head.
struct Heads {
  const char *memory;  // the head in slot 0
  int type;
  int d;
  int slot;            // elements from one slot to the next
};

// N values from `first` on of the heads in some slots, zero past the d-th. WIDE: N values
// can be read at once, and d is a multiple of N.
template <int TYPE, bool WIDE, int B, int N>
__device__ inline void load_as(float (&x)[B][N], const Heads &heads,
                               const int (&slots)[B], int first) {
  const Cache<TYPE> cache(heads.memory);
#pragma unroll
  for (int b = 0; b < B; ++b) {
    const size_t at = (long long)slots[b] * heads.slot + first;
#pragma unroll
    for (int n = 0; n < N; ++n) x[b][n] = 0.0f;
    if constexpr (WIDE) {
      if (first < heads.d) cache.many(x[b], at);
    } else {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        if (first + n < heads.d) x[b][n] = cache.one(at + n);
      }
    }
  }
}

template <bool WIDE, int B, int N>
__device__ inline void load(float (&x)[B][N], const Heads &heads, const int (&slots)[B],
                            int first) {
  if (heads.type == kF16) {
    load_as<kF16, WIDE>(x, heads, slots, first);
  } else if (heads.type == kBF16) {
    load_as<kBF16, WIDE>(x, heads, slots, first);
  } else {
    load_as<kF32, WIDE>(x, heads, slots, first);
  }
}

}  // namespace ft::attention
