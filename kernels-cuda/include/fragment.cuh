// Stored weights to the A operands of tensor-core products, in registers.
//
// A *unit* is 256 inputs, handed to the four lanes `t` of a quad; a *pair* is what two
// products of 16 inputs take, 8 inputs of each lane: pair w has inputs 64 t + 4 w +
// {0, 2, 1, 3}, then the same 32 further on. `linear_pack` lays activations out alike.
//
// A fragment is made for two rows of a tile, g and g + 8, whose stored bytes of the unit
// lie in shared memory: `Type::begin` takes them, `Type::pair` gives the operands of the two
// products of a pair. These are the types that are not kept in bricks (brick.cuh): values
// are decoded in f32 (quant.cuh) and rounded once.
#pragma once

#include "mma.cuh"
#include "quant.cuh"

namespace ft::fragment {

// Any block type, by way of f32.
template <class Type>
struct Decoded {
  static constexpr int kUnit = 256, kPairs = 8, kGrain = Type::kBytes % 2 ? 1 : 2;
  static constexpr int kUnitBytes = 256 / Type::kElements * Type::kBytes;
  static constexpr int kTiles = 1;
  static constexpr bool kBfloat = false;
  const uint8_t *rows[2];
  int first;

  __device__ void begin(const uint8_t *low, const uint8_t *high, int t) {
    rows[0] = low;
    rows[1] = high;
    first = 64 * t;
  }

  __device__ void pair(int w, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int k = first + 4 * w + 32 * i, at = k % Type::kElements;
        const uint8_t *block = rows[r] + k / Type::kElements * Type::kBytes;
        float x[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
          x[j] = quant::value<Type>(block, at / Type::kSub, Type::code(block, at + j));
        }
        a[i][r] = pack_half(x[0], x[2]);
        a[i][r + 2] = pack_half(x[1], x[3]);
      }
    }
  }
};

}  // namespace ft::fragment
