// The chunked delta rule: what its first kernel leaves in scratch memory for its second.
//
// A chunk is 64 rows; rows past the live ones of the last chunk have keys, queries and
// strengths of zero and a decay of one. With G the running sum of a head's log decays in
// the chunk, b the strengths, and A[i][j] = b[i] (k[i] . k[j]) e^(G[i] - G[j]) below the
// diagonal, else 0, scratch memory holds, in binary16:
//   of each chunk and key head: keys and queries of unit length, [64][DK] each;
//   of each chunk and value head: the *solver* (1 + A)^-1 with column j times b[j], and the
//   *scores* (q[i] . k[j]) e^(G[i] - G[j]) up to the diagonal, [64][64] each, in whole
//   blocks of 16 by 16 up to the diagonal; then two vectors of F32, `Factors`.
// Every number in binary16 is at most 1 in size: an entry of the solver is what is left,
// after contractions, of one unit key along another.
#pragma once

#include "delta_gates.cuh"
#include "foretoken.cuh"
#include "mma.cuh"

namespace ft::delta {

constexpr int kChunk = 64;

// Tiles of [64][W] numbers: rows of W / 8 pieces of 16 bytes, of which eight neighbours trade
// places by the row, so that eight rows' pieces of a column lie in all banks. In bytes from
// the start, which lies on a multiple of a row. Exclusive or with 32 i leads from piece 0
// or 1 to piece 2 i or 2 i + 1.
template <int W>
__device__ inline uint32_t place(int row, int piece) {
  return 2 * W * row + 16 * (piece ^ (row & 7));
}

template <int W>
constexpr int kTileBytes = 2 * kChunk * W;

// Keys, then queries.
template <int DK>
constexpr int kKeyBytes = 2 * kTileBytes<DK>;

struct Factors {
  float before[kChunk];  // e^G[i]: from the chunk's start to after row i
  float after[kChunk];   // e^(G[63] - G[i]): from there to its end
};

// Solver, scores, factors.
constexpr int kSquareBytes = kTileBytes<kChunk>;
constexpr int kHeadBytes = 2 * kSquareBytes + int(sizeof(Factors));

// This lane's place for `ft::matrices` of operand B, or for `ft::transposed` of A: two tiles
// of 8 rows below each other, each with pieces 0 and 1.
template <int W>
__device__ inline uint32_t rows_first(int lane) {
  return place<W>(8 * (lane / 16) + lane % 8, lane / 8 % 2);
}

// The same for `ft::matrices` of operand A, or for `ft::transposed` of B.
template <int W>
__device__ inline uint32_t pieces_first(int lane) {
  return place<W>(8 * (lane / 8 % 2) + lane % 8, lane / 16);
}

}  // namespace ft::delta
