// Accepted paths (kernel/tree.rs of the engine): words in device memory that may be
// anything, so they are checked before a row is touched.
#pragma once

#include "foretoken.cuh"

namespace ft {

// Most rows of a tree.
constexpr int kTreeRows = 64;

// Copies the rows of a path to shared memory and returns how many they are, at least 1; or
// -1, and the launch fails, when they are not `rows` or fewer rows in ascending order from
// row 0 on. For whole blocks of one dimension; ends with a barrier.
__device__ inline int read_path(Site site, const int *words, int capacity, int rows,
                                int (&path)[kTreeRows]) {
  const int count = words[0];
  if (count < 1 || count > min(capacity, kTreeRows)) return fail(site, Code::kBadPath, count), -1;
  int bad = 0;
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    const int row = words[1 + i];
    bad |= i == 0 ? row != 0 : row <= words[i];
    bad |= row >= rows;
    path[i] = row;
  }
  if (__syncthreads_or(bad)) return fail(site, Code::kBadPath, count), -1;
  return count;
}

// Rows whose sources are read before their targets are written.
constexpr int kBatch = 8;

// Moves one column of the path's rows together: row `slot(path[i])` of memory to row
// `slot(i)`. Rows of a path ascend from 0, so a row goes to its own place or an earlier
// one: sources of later batches have not been written yet. `slot` takes different rows to
// different places, and no other thread has the column.
template <class Unit, class Slot>
__device__ inline void compact(Unit *memory, long long units, int column,
                               const int (&path)[kTreeRows], int count, Slot slot) {
  for (int first = 0; first < count; first += kBatch) {
    Unit moved[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; j++) {
      const int to = first + j;
      if (to < count && path[to] != to) moved[j] = memory[slot(path[to]) * units + column];
    }
#pragma unroll
    for (int j = 0; j < kBatch; j++) {
      const int to = first + j;
      if (to < count && path[to] != to) memory[slot(to) * units + column] = moved[j];
    }
  }
}

}  // namespace ft
