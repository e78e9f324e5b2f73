// Growing token trees in shared memory: what tree.cu works with.
#pragma once

#include "path.cuh"

namespace ft {

// Scores that are read ahead; larger drafts are read as they are needed.
constexpr int kScoreTable = 512;

// Most prefixes that wait for their turn. Taking one puts at most two in its place, and no
// more are taken than there are rows and rows of the chain.
constexpr int kOpen = 2 * kTreeRows;

// A drafter's candidates: [P, k] ids and scores, [P] sums or null.
struct Candidates {
  const int *ids;
  const float *scores;
  const float *log_sum_exp;
  int k;
  unsigned vocabulary;

  // The score of a candidate, or NaN past the end of its position's list.
  __device__ double score(int position, int rank) const {
    const double nan = __longlong_as_double(0x7ff8000000000000ll);
    if (rank >= k) return nan;
    const long long at = static_cast<long long>(position) * k + rank;
    const double sum = log_sum_exp ? log_sum_exp[position] : 0.0f;
    const double score = __dsub_rn(static_cast<double>(scores[at]), sum);
    const bool known = static_cast<unsigned>(ids[at]) < vocabulary;
    // The comparison is false for a NaN.
    return known && score < __longlong_as_double(0x7ff0000000000000ll) ? score : nan;
  }
};

// A tree that one warp grows. Ranks fit in a byte: a prefix of rank r comes after r better
// siblings were taken, and no more than 127 prefixes are.
struct Growth {
  double sums[kTreeRows];
  unsigned long long masks[kTreeRows];
  int parents[kTreeRows];
  int depths[kTreeRows];
  int ranks[kTreeRows];
  // The ranks along the path to a row.
  unsigned char paths[kTreeRows][kTreeRows];

  double open_sums[kOpen];
  unsigned char open_parents[kOpen];
  unsigned char open_ranks[kOpen];

  double table[kScoreTable];
};

// Whether one open prefix goes before another: higher score, then the lexicographically
// smaller list of ranks. Minus infinity equals itself; there are no NaNs.
__device__ inline bool before(const Growth &tree, int one, int other) {
  const double a = tree.open_sums[one], b = tree.open_sums[other];
  if (a != b) return a > b;
  const int parent_a = tree.open_parents[one], parent_b = tree.open_parents[other];
  const int last_a = tree.depths[parent_a], last_b = tree.depths[parent_b];
  for (int i = 0; i <= min(last_a, last_b); i++) {
    const int rank_a = i < last_a ? tree.paths[parent_a][i] : tree.open_ranks[one];
    const int rank_b = i < last_b ? tree.paths[parent_b][i] : tree.open_ranks[other];
    if (rank_a != rank_b) return rank_a < rank_b;
  }
  return last_a < last_b;
}

// The place of the open prefix that goes first, of `count`, at least 1. For whole warps.
__device__ inline int first_open(const Growth &tree, int count) {
  const int lane = threadIdx.x % 32;
  int best = lane < count ? lane : -1;
  for (int i = lane + 32; i < count; i += 32) {
    if (before(tree, i, best)) best = i;
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const int other = __shfl_xor_sync(0xffffffffu, best, distance);
    if (other >= 0 && (best < 0 || before(tree, other, best))) best = other;
  }
  return best;
}

}  // namespace ft
