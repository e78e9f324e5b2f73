// The chunked delta rule: what its first kernel leaves in scratch memory for its second.
//
// A chunk is 64 rows; rows past the live ones of the last chunk have keys, queries and
// strengths of zero and a decay of one. With G the running sum of a head's log decays in
// the chunk, b the strengths, and A[i][j] = b[i] (k[i] . k[j]) e^(G[i] - G[j]) below the
// diagonal, else 0, scratch memory holds, in binary16:
//   of each chunk and key head: keys of unit length and queries of 1 / sqrt(dk), in *lines* of
//   64 numbers of each row, rows of keys first, [DK / 64][128][64];
//   of each chunk and value head: the *solver* (1 + A)^-1 with column j times b[j], and the
//   *scores* (q[i] . k[j]) e^(G[i] - G[j]) up to the diagonal, [64][64] each; then two
//   vectors of F32, `Factors`.
// Every number in binary16 is at most 1 in size: an entry of the solver is what is left,
// after contractions, of one unit key along another.
//
// A row of 64 numbers is 8 pieces of 16 bytes, which trade places by the row, so that eight
// rows' pieces of a column lie in all banks: the 128-byte swizzle of Hopper's products.
#pragma once

#include "delta_gates.cuh"
#include "foretoken.cuh"
#include "mma.cuh"

namespace ft::delta {

constexpr int kChunk = 64;

// Bytes of a row of 64 numbers, of 64 rows, of a line of keys and queries.
constexpr int kRowBytes = 128;
constexpr int kSquareBytes = kChunk * kRowBytes;
constexpr int kLineBytes = 2 * kSquareBytes;

// Bytes from the start of a tile, which lies on a multiple of eight rows. Exclusive or with
// 32 i leads from piece 0 or 1 to piece 2 i or 2 i + 1.
__device__ inline uint32_t place(int row, int piece) {
  return kRowBytes * row + 16 * (piece ^ (row & 7));
}

template <int DK>
constexpr int kKeyBytes = DK / 64 * kLineBytes;

struct Factors {
  float before[kChunk];  // e^G[i]: from the chunk's start to after row i
  float after[kChunk];   // e^(G[63] - G[i]): from there to its end
};

// Solver, scores, factors.
constexpr int kHeadBytes = 2 * kSquareBytes + int(sizeof(Factors));

// A chunk in shared memory: what its key head and its value head have, after each other.
template <int DK>
struct Stage {
  char keys[kKeyBytes<DK>];
  char solver[kSquareBytes], scores[kSquareBytes];
  Factors factors;
};

// This lane's place for `ft::matrices` of operand B: two tiles of 8 rows below each other,
// each with pieces 0 and 1.
__device__ inline uint32_t rows_first(int lane) {
  return place(8 * (lane / 16) + lane % 8, lane / 8 % 2);
}

// The same for `ft::matrices` of operand A, or for `ft::transposed` of B.
__device__ inline uint32_t pieces_first(int lane) {
  return place(8 * (lane / 8 % 2) + lane % 8, lane / 16);
}

// Operand A of what a product left as C: 8 columns `x`, then 8 columns `y`, in binary16.
__device__ inline void operand(uint32_t (&a)[4], const float (&x)[4], const float (&y)[4]) {
  a[0] = ft::pack_half(x[0], x[1]);
  a[1] = ft::pack_half(x[2], x[3]);
  a[2] = ft::pack_half(y[0], y[1]);
  a[3] = ft::pack_half(y[2], y[3]);
}

}  // namespace ft::delta
