// Token trees and accepted paths as kernels read them: checked copies in shared memory,
// made anew in each launch, so that nothing in device memory leads out of bounds.
#pragma once

#include "foretoken.cuh"

namespace ft {

// Most rows of a tree.
constexpr int kMaxTree = 64;

using Rowset = unsigned long long;  // bit r: row r of a tree

struct Tree {
  int parents[kMaxTree];
  int depths[kMaxTree];
};

// Copies the first `rows` rows. False, and the launch fails, unless each row comes after
// its parent and one level below it. Every thread of the block calls and gets the same
// answer; the copy can be read afterwards. Whoever makes a tree publishes it (`ahead`), so
// this may come before `after_previous`.
__device__ inline bool read_tree(Site site, const int *parents, const int *depths, int rows,
                                 Tree &tree) {
  const int threads = blockDim.x * blockDim.y;
  bool good = rows <= kMaxTree;
  for (int row = threadIdx.y * blockDim.x + threadIdx.x; row < min(rows, kMaxTree);
       row += threads) {
    const int parent = ahead(parents + row), depth = ahead(depths + row);
    tree.parents[row] = parent;
    tree.depths[row] = depth;
    if (row == 0) {
      good = good && parent == -1 && depth == 0;
    } else {
      // By induction from row 0 on, all depths are then true ones.
      good = good && parent >= 0 && parent < row && depth > 0 &&
             depth - 1 == ahead(depths + parent);
    }
  }
  if (__syncthreads_and(good)) return true;
  fail(site, Code::kBadTree, rows);
  return false;
}

// A row and its ancestors, of a tree that was read. Rows ascend along a path.
__device__ inline Rowset path_to(const Tree &tree, int row) {
  Rowset path = 0;
  for (int at = row; at >= 0; at = tree.parents[at]) path |= Rowset(1) << at;
  return path;
}

// Copies an accepted path of at most `capacity` rows out of `live`. Returns its rows; 0,
// and the launch fails, unless they ascend from row 0 and are live. Every thread of the
// block calls and gets the same answer; the copy can be read afterwards.
__device__ inline int read_path(Site site, const int *words, int capacity, int live,
                                int (&path)[kMaxTree]) {
  const int count = words[0];
  const int most = min(capacity, kMaxTree);
  bool good = count >= 1 && count <= most;
  for (int i = threadIdx.x; i < min(count, most); i += blockDim.x) {
    const int row = words[1 + i];
    path[i] = row;
    good = good && row >= 0 && row < live && (i == 0 ? row == 0 : row > words[i]);
  }
  if (__syncthreads_and(good)) return count;
  fail(site, Code::kBadPath, count);
  return 0;
}

}  // namespace ft
