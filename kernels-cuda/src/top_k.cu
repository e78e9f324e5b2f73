// The k largest logits of each row, descending, ties to the lower id; and the log of the sum
// of exponentials.
//
// logits [M, V] f32, ids [M, k] i32, values [M, k] f32, log_sum_exp [M] f32 or null. Two
// launches. Entries travel as 64-bit keys whose ascending order is the wanted one.
//
// top_k_pieces: one block to a piece of 2048 logits. Leaves the best min(k, 2048) keys of the
//               piece in ascending order, its maximum, and its sum of exponentials relative
//               to that; a NaN or an infinity makes the sum NaN. Up to 8 are found one
//               after the other, more by sorting the piece (bitonic, in shared memory).
// top_k_merge:  one block to a row; copies the pieces' keys to shared memory if they fit.
//               Then one warp: each lane has every 32nd piece, and the best of the pieces'
//               first keys is taken k times.
//
// The sum: each thread adds every 256th entry of the piece, then lanes and warps are folded;
// pieces in f64, a lane adds every 32nd, then lanes are folded. The order depends on V alone.
// Scratch: keys [M, pieces, kept] u64, then (maximum, sum) [M, pieces].
// Bound: memory, the row once; of the merge k times the latency of a reduction.

#include "foretoken.cuh"
#include "reduce.cuh"

namespace {

typedef unsigned long long Key;

// Logits in a piece, threads of its block, logits of a thread; ops/top_k.rs of the driver
// knows the first.
constexpr int kPiece = 2048;
constexpr int kThreads = 256;
constexpr int kOwn = kPiece / kThreads;

// Up to this many keys are found one by one.
constexpr int kFew = 8;

// Comes after every entry.
constexpr Key kNone = ~0ull;

// Threads of a merge.
constexpr int kMergeThreads = 128;

struct Summary {
  float max;
  float sum;
};

// Larger logit first, then lower id. The two zeros are equal. Not for NaN.
__device__ Key key_of(float logit, unsigned id) {
  const unsigned bits = __float_as_uint(logit + 0.0f);
  const unsigned ascending = bits >> 31 ? ~bits : bits | 0x80000000u;
  return static_cast<Key>(~ascending) << 32 | id;
}

// The logit of a key (plus zero for either zero).
__device__ float logit_of(Key key) {
  const unsigned ascending = ~static_cast<unsigned>(key >> 32);
  return __uint_as_float(ascending >> 31 ? ascending & 0x7fffffffu : ~ascending);
}

__device__ Key warp_min(Key key) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    key = min(key, __shfl_xor_sync(ft::kAllLanes, key, distance));
  }
  return key;
}

// The `n` best of the block's keys in ascending order to `out`; the first is returned.
// `room` is for one key of each warp, twice.
__device__ Key few(Key (&keys)[kOwn], int n, Key *out, Key (&room)[2][kThreads / 32]) {
  Key own = kNone, first = kNone;
#pragma unroll
  for (int j = 0; j < kOwn; j++) own = min(own, keys[j]);
  for (int i = 0; i < n; i++) {
    const Key of_warp = warp_min(own);
    if (threadIdx.x % 32 == 0) room[i % 2][threadIdx.x / 32] = of_warp;
    __syncthreads();
    Key best = room[i % 2][0];
#pragma unroll
    for (int warp = 1; warp < kThreads / 32; warp++) best = min(best, room[i % 2][warp]);
    if (i == 0) first = best;
    if (threadIdx.x == 0) out[i] = best;
    if (own == best) {
      own = kNone;
#pragma unroll
      for (int j = 0; j < kOwn; j++) {
        if (keys[j] == best) keys[j] = kNone;
        own = min(own, keys[j]);
      }
    }
  }
  return first;
}

// Sorts the piece's keys, ascending. Ends with a barrier.
__device__ void sort(Key *keys) {
  for (int size = 2; size <= kPiece; size *= 2) {
    for (int distance = size / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (int pair = threadIdx.x; pair < kPiece / 2; pair += kThreads) {
        const int low = 2 * pair - pair % distance, high = low + distance;
        const Key a = keys[low], b = keys[high];
        const bool ascending = (low & size) == 0;
        if ((a > b) == ascending) {
          keys[low] = b;
          keys[high] = a;
        }
      }
    }
  }
  __syncthreads();
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    top_k_pieces(ft::Site site, const int *control, const float *logits, Key *scratch,
                 int capacity, int vocabulary, int pieces, int kept, unsigned with_sum) {
  __shared__ Key sorted[kPiece];
  __shared__ Key room[2][kThreads / 32];
  __shared__ float partials[32];
  const int rows = ft::row_set(site, control, ft::kLogitsCompact, capacity, capacity).count;
  const int row = blockIdx.x / pieces, piece = blockIdx.x % pieces;
  if (row >= rows) return;
  const long long at = static_cast<long long>(row) * pieces + piece;
  Key *out = scratch + at * kept;
  Summary *summary =
      reinterpret_cast<Summary *>(scratch + static_cast<long long>(capacity) * pieces * kept) +
      at;

  const float *x = logits + static_cast<long long>(row) * vocabulary;
  const int first = piece * kPiece + threadIdx.x;
  float own[kOwn];
  Key keys[kOwn];
  int spoilt = 0;
#pragma unroll
  for (int j = 0; j < kOwn; j++) {
    const int id = first + j * kThreads;
    own[j] = id < vocabulary ? x[id] : 0.0f;
    spoilt |= (__float_as_uint(own[j]) & 0x7f800000u) == 0x7f800000u;
    keys[j] = id < vocabulary ? key_of(own[j], id) : kNone;
  }
  if (__syncthreads_or(spoilt)) {
    if (threadIdx.x == 0) *summary = Summary{0.0f, __uint_as_float(0x7fc00000u)};
    return;
  }
  Key best;
  if (kept <= kFew) {
    best = few(keys, kept, out, room);
  } else {
#pragma unroll
    for (int j = 0; j < kOwn; j++) sorted[threadIdx.x + j * kThreads] = keys[j];
    sort(sorted);
    best = sorted[0];
    for (int i = threadIdx.x; i < kept; i += kThreads) out[i] = sorted[i];
  }
  const float max = logit_of(best);
  float sum = 0.0f;
  if (with_sum) {
#pragma unroll
    for (int j = 0; j < kOwn; j++) {
      if (first + j * kThreads < vocabulary) sum += expf(own[j] - max);
    }
    sum = ft::block_sum(sum, partials);
  }
  if (threadIdx.x == 0) *summary = Summary{max, sum};
}

// Memory of a merge: the keys of the row, if they are copied, then a cursor to each piece.
extern __shared__ Key merge_room[];

extern "C" __global__ void __launch_bounds__(kMergeThreads)
    top_k_merge(ft::Site site, const int *control, const float *logits, const Key *scratch,
                int *ids, float *values, float *log_sum_exp, int capacity, int vocabulary,
                int pieces, int kept, int k, unsigned copied) {
  const int rows = ft::row_set(site, control, ft::kLogitsCompact, capacity, capacity).count;
  const int row = blockIdx.x, lane = threadIdx.x;
  if (row >= rows) return;
  const long long all = static_cast<long long>(pieces) * kept;
  const Key *keys = scratch + row * all;
  int *cursors = reinterpret_cast<int *>(merge_room + (copied ? all : 0));
  if (copied) {
    for (int i = threadIdx.x; i < all; i += kMergeThreads) merge_room[i] = keys[i];
    keys = merge_room;
  }
  for (int piece = threadIdx.x; piece < pieces; piece += kMergeThreads) cursors[piece] = 0;
  __syncthreads();
  if (threadIdx.x >= 32) return;

  const Summary *summaries = reinterpret_cast<const Summary *>(scratch + capacity * all) +
                             static_cast<long long>(row) * pieces;
  ids += static_cast<long long>(row) * k;
  values += static_cast<long long>(row) * k;
  float max = __uint_as_float(0xff800000u);
  bool finite = true;
  for (int piece = lane; piece < pieces; piece += 32) {
    const Summary part = summaries[piece];
    finite = finite && part.sum == part.sum;
    max = fmaxf(max, part.max);
  }
  if (!__all_sync(ft::kAllLanes, finite)) {
    const float nan = __uint_as_float(0x7fc00000u);
    for (int i = lane; i < k; i += 32) {
      ids[i] = -1;
      values[i] = nan;
    }
    if (log_sum_exp && lane == 0) log_sum_exp[row] = nan;
    return;
  }
  if (log_sum_exp) {
    double sum = 0.0;
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      max = fmaxf(max, __shfl_xor_sync(ft::kAllLanes, max, distance));
    }
    for (int piece = lane; piece < pieces; piece += 32) {
      const Summary part = summaries[piece];
      sum += part.sum * exp(static_cast<double>(part.max - max));
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(ft::kAllLanes, sum, distance);
    }
    if (lane == 0) log_sum_exp[row] = static_cast<float>(max + log(sum));
  }

  // The best first key of the lane's pieces, and which piece has it.
  Key own = kNone;
  int from = 0;
  const auto look = [&] {
    own = kNone;
    for (int piece = lane; piece < pieces; piece += 32) {
      const int at = cursors[piece];
      const Key key = at < kept ? keys[static_cast<long long>(piece) * kept + at] : kNone;
      if (key < own) {
        own = key;
        from = piece;
      }
    }
  };
  look();
  for (int i = 0; i < k; i++) {
    const Key best = warp_min(own);
    if (own == best && own != kNone) {
      ids[i] = static_cast<int>(best & 0xffffffffu);
      cursors[from]++;
      look();
    }
  }
  __syncwarp();
  const float *x = logits + static_cast<long long>(row) * vocabulary;
  for (int i = lane; i < k; i += 32) values[i] = x[ids[i]];
}
