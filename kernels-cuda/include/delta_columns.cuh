// What the kernels that take the state from chunk to chunk share: a warp's 16 columns.
//
// Everything is computed transposed: a column of values is a row of the products' left
// operand and sums, so that what one product leaves in a lane is what the lane gives to the
// next. Lane 4 g + t has columns g and g + 8; of tile n of 8 rows or keys, elements 2 t and
// 2 t + 1 of column g, then of g + 8.
#pragma once

#include "delta_chunk.cuh"

namespace ft::delta {

struct StateArgs {
  ft::Site site;
  const int *control;
  const float *qkv;
  const char *keys, *heads;
  float *state, *out;
  int first, count, capacity, key_heads, dk, dv, tiled, stages;
};

// What a column's values and state are multiplied with: a power of two that brings the
// largest to 2^7 or above, below 2^8, or 1 where that is not needed. Sums and what is
// written reach 2^7 times as much, and are numbers of binary16 still.
__device__ inline float column_factor(float largest) {
  if (largest == 0.0f || (largest >= 0x1p-9f && largest < 0x1p8f)) return 1.0f;
  const int exponent = int(__float_as_uint(largest) >> 23);
  return __uint_as_float(unsigned(min(max(127 + 7 + 127 - exponent, 1), 253)) << 23);
}

struct Columns {
  int lane, warp, g, t;
  int head, key_head, value_heads;
  int live;                // rows, none for a warp without columns
  size_t width, out_width;
  const float *values;     // of column g, in the first row
  float *out, *state;
  int dk;

  // For `count` live rows from `args.first` on.
  __device__ Columns(const StateArgs &args, int count) {
    lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    value_heads = gridDim.y, head = blockIdx.y;
    key_head = args.tiled ? head % args.key_heads : head / (value_heads / args.key_heads);
    const int column = 16 * (blockIdx.x * (blockDim.x / 32) + warp);
    live = column < args.dv ? count : 0;
    const size_t keys = 2 * size_t(args.key_heads) * args.dk;
    const size_t at = size_t(head) * args.dv + column + g;
    out_width = size_t(value_heads) * args.dv;
    width = keys + out_width;
    values = args.qkv + args.first * width + keys + at;
    out = args.out + args.first * out_width + at;
    state = args.state + at * args.dk + 2 * t;
    dk = args.dk;
  }

  // The values of a chunk; of rows that are not live, zeros.
  __device__ void load(float (&v)[8][4], int chunk) const {
    const int left = live - kChunk * chunk;
    const float *from = values + size_t(kChunk * chunk + 2 * t) * width;
    if (left >= kChunk) {
#pragma unroll
      for (int n = 0; n < 8; ++n, from += 8 * width) {
        v[n][0] = from[0], v[n][1] = from[width], v[n][2] = from[8], v[n][3] = from[width + 8];
      }
      return;
    }
#pragma unroll
    for (int n = 0; n < 8; ++n, from += 8 * width) {
      const bool first = 8 * n + 2 * t < left, second = 8 * n + 2 * t + 1 < left;
      v[n][0] = first ? from[0] : 0.0f, v[n][1] = second ? from[width] : 0.0f;
      v[n][2] = first ? from[8] : 0.0f, v[n][3] = second ? from[width + 8] : 0.0f;
    }
  }

  // The outputs of a chunk.
  __device__ void store(const float (&o)[8][4], int chunk) const {
    const int left = live - kChunk * chunk;
    float *to = out + size_t(kChunk * chunk + 2 * t) * out_width;
    if (left >= kChunk) {
#pragma unroll
      for (int n = 0; n < 8; ++n, to += 8 * out_width) {
        to[0] = o[n][0], to[out_width] = o[n][1], to[8] = o[n][2], to[out_width + 8] = o[n][3];
      }
      return;
    }
#pragma unroll
    for (int n = 0; n < 8; ++n, to += 8 * out_width) {
      if (8 * n + 2 * t < left) to[0] = o[n][0], to[8] = o[n][2];
      if (8 * n + 2 * t + 1 < left) to[out_width] = o[n][1], to[out_width + 8] = o[n][3];
    }
  }

  template <int TILES>
  __device__ void load_state(float (&s)[TILES][4]) const {
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float2 x = make_float2(0.0f, 0.0f);
        if (live && 8 * n < dk) {
          x = *reinterpret_cast<const float2 *>(state + 8 * r * dk + 8 * n);
        }
        s[n][2 * r] = x.x, s[n][2 * r + 1] = x.y;
      }
    }
  }

  template <int TILES>
  __device__ void store_state(const float (&s)[TILES][4]) const {
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (live && 8 * n < dk) {
          *reinterpret_cast<float2 *>(state + 8 * r * dk + 8 * n) =
              make_float2(s[n][2 * r], s[n][2 * r + 1]);
        }
      }
    }
  }
};

// What the two columns of a lane are multiplied with for a chunk.
struct Scale {
  float by[2], back[2];

  // `value` gives the value of tile n, c as in C.
  template <int TILES, class Value>
  __device__ Scale(const float (&s)[TILES][4], Value value) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = 0.0f;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        largest = fmaxf(largest, fmaxf(fabsf(value(n, 2 * r)), fabsf(value(n, 2 * r + 1))));
      }
#pragma unroll
      for (int n = 0; n < TILES; ++n) {
        largest = fmaxf(largest, fmaxf(fabsf(s[n][2 * r]), fabsf(s[n][2 * r + 1])));
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      by[r] = column_factor(largest);
      back[r] = 1.0f / by[r];
    }
  }

  // Operand A of 16 keys of the state.
  __device__ void operand(uint32_t (&a)[4], const float (&x)[4], const float (&y)[4]) const {
    a[0] = ft::pack_half(x[0] * by[0], x[1] * by[0]);
    a[1] = ft::pack_half(x[2] * by[1], x[3] * by[1]);
    a[2] = ft::pack_half(y[0] * by[0], y[1] * by[0]);
    a[3] = ft::pack_half(y[2] * by[1], y[3] * by[1]);
  }

  template <int TILES>
  __device__ void undo(float (&x)[TILES][4]) const {
    if (by[0] == 1.0f && by[1] == 1.0f) return;
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) x[n][c] *= back[c / 2];
    }
  }

  // Before the chunk's writes are added: forgets, and multiplies.
  template <int TILES>
  __device__ void forget(float (&s)[TILES][4], float decay) const {
    const float both[2] = {decay * by[0], decay * by[1]};
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) s[n][c] *= both[c / 2];
    }
  }
};

// Each element times the factor of its row of the chunk.
__device__ inline void by_rows(float (&x)[8][4], const float *factors, int t) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float2 f = *reinterpret_cast<const float2 *>(&factors[8 * n + 2 * t]);
    x[n][0] *= f.x, x[n][1] *= f.y, x[n][2] *= f.x, x[n][3] *= f.y;
  }
}

// What rows would write, were each alone: values less what their keys find.
template <class Value>
__device__ inline void wanted(float (&known)[8][4], Value value, const Scale &scale,
                              const float *before, int t) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float2 f = *reinterpret_cast<const float2 *>(&before[8 * n + 2 * t]);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      known[n][c] =
          fmaf(c % 2 ? -f.y : -f.x, known[n][c], value(n, c) * scale.by[c / 2]);
    }
  }
}

// The operands A of 64 rows of the chunk.
__device__ inline void operands(uint32_t (&a)[4][4], const float (&x)[8][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) operand(a[i], x[2 * i], x[2 * i + 1]);
}

}  // namespace ft::delta

// A kernel by `run<DK>` of the source.
#define FT_GATED_DELTA_STATE(NAME, DK, THREADS)                                                \
  extern "C" __global__ void __launch_bounds__(THREADS) NAME(                                  \
      ft::Site site, const int *control, const float *qkv, const char *keys,                   \
      const char *heads, float *state, float *out, int first, int count, int capacity,         \
      int key_heads, int dk, int dv, int tiled, int stages) {                                  \
    run<DK>(StateArgs{site, control, qkv, keys, heads, state, out, first, count, capacity,     \
                      key_heads, dk, dv, tiled, stages});                                      \
  }
