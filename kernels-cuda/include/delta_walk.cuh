// The order in which the delta rule visits a tree: depth first, leaves before the children
// that go on.
#pragma once

#include "ancestry.cuh"

namespace ft::delta {

constexpr unsigned kAll = 0xffffffffu;  // lanes

// What to do with a row: bits of an entry, its row in the low six.
constexpr unsigned kRowBits = 63;
constexpr unsigned kOutput = 64;        // write the output
constexpr unsigned kKeep = 128;         // leave the registers with the row's state
constexpr unsigned kSaveShift = 8;      // then copy them to place n - 1
constexpr unsigned kLoadShift = 10;     // first take them from place n - 1
constexpr unsigned kPlaceMask = 3;
constexpr unsigned kInitial = 1 << 12;  // first take them from the state in memory

// A tree's entries: each row once, and rows of paths that are run again. Of the latter
// there are at most half the rows of a path (one each time, and a child with a child of
// its own stands for each) times its length: 16 * 32.
constexpr int kMaxEntries = kMaxTree + 512;

// A tree, and the entries that lead through it.
template <int PLACES>
struct Walk {
  Tree tree;
  Rowset paths[kMaxTree], left[kMaxTree];  // left: children not visited yet
  unsigned below[kMaxTree][2];             // a row and its descendants
  int ahead[kMaxTree];                     // entries from a row's parent to it
  signed char place[kMaxTree];             // of those there are PLACES
  unsigned short entries[kMaxEntries];
  unsigned inner[2];                       // rows with children
  int count;
};

__device__ inline int lowest(Rowset rows) {
  return __ffsll(static_cast<long long>(rows)) - 1;
}

// The entries of a tree whose rows can all be kept that have to be, a row for each of the
// first 64 threads; false when there are not places enough. `inner` are the rows with
// children. A fork, a row with several inner children, is open until the last of them:
// its place is the number of open forks above it.
template <int PLACES>
__device__ inline bool plan_at_once(Walk<PLACES> &walk, int rows, Rowset inner) {
  const int row = threadIdx.x;
  const bool mine = row < rows;
  const Rowset path = mine ? walk.paths[row] : 0;
  if (row < kMaxTree) {
    for (int at = 0; at < rows; ++at) {
      const unsigned half = __ballot_sync(kAll, path >> at & 1);
      if (row % 32 == 0) walk.below[at][row / 32] = half;
    }
  }
  __syncthreads();
  const auto forked = [&](int at) { return __popcll(walk.left[at] & inner) >= 2; };
  const Rowset self = Rowset(1) << (row % 64);
  bool later = false;  // not the first inner child of its parent
  if (mine) {
    walk.ahead[row] = 0;
    if (row > 0) {
      const Rowset children = walk.left[walk.tree.parents[row]];
      if (inner & self) {
        Rowset before = children & inner & (self - 1);
        later = before != 0;
        int ahead = 1 + __popcll(children & ~inner);
        for (; before; before &= before - 1) {
          const unsigned *const half = walk.below[lowest(before)];
          ahead += __popc(half[0]) + __popc(half[1]);
        }
        walk.ahead[row] = ahead;
      } else {
        walk.ahead[row] = 1 + __popcll(children & ~inner & (self - 1));
      }
    }
  }
  __syncthreads();
  int at = 0, open = 0;
  if (mine) {
    // Down to the row: where it stands, and how many forks are open on the way.
    Rowset todo = path;
    while (todo) {
      const int above = lowest(todo);
      todo &= todo - 1;
      at += walk.ahead[above];
      if (todo && forked(above)) {
        const Rowset last = walk.left[above] & inner;
        const int next = lowest(todo);
        open += (last >> next) > 1 || !(inner >> next & 1);
      }
    }
  }
  const bool fork = mine && forked(row);
  if (__syncthreads_or(fork && open >= PLACES)) return false;
  if (fork) walk.place[row] = static_cast<signed char>(open);
  __syncthreads();
  if (mine) {
    unsigned entry = row | kOutput;
    if (inner & self) entry |= kKeep;
    if (fork) entry |= unsigned(open + 1) << kSaveShift;
    if (later) entry |= unsigned(walk.place[walk.tree.parents[row]] + 1) << kLoadShift;
    walk.entries[at] = static_cast<unsigned short>(entry);
  }
  if (row == 0) walk.count = rows;
  __syncthreads();
  return true;
}

// The entries of any tree, by one thread.
template <int PLACES>
__device__ inline void plan(Walk<PLACES> &walk, Rowset inner) {
  int count = 0, node = 0;
  int held = 0;  // the row whose state the registers hold
  unsigned free = (1u << PLACES) - 1;
  auto several = [&](int row) { return __popcll(walk.left[row] & inner) >= 2; };
  auto push = [&](unsigned entry) {
    if (count < kMaxEntries) walk.entries[count++] = static_cast<unsigned short>(entry);
  };
  // A row that goes on, with a place to keep its state in when there will be need and walk.
  auto visit = [&](int row, unsigned load) {
    unsigned entry = row | kOutput | kKeep | load;
    if (several(row) && free) {
      const int place = __ffs(free) - 1;
      free &= free - 1;
      walk.place[row] = static_cast<signed char>(place);
      entry |= unsigned(place + 1) << kSaveShift;
    }
    push(entry);
    held = row;
  };
  visit(0, 0);
  while (true) {
    const Rowset children = walk.left[node];
    if (children == 0) {
      if (node == 0) break;
      node = walk.tree.parents[node];
      continue;
    }
    const Rowset leaves = children & ~inner;
    const int next = lowest(leaves ? leaves : children);
    walk.left[node] = children & ~(Rowset(1) << next);
    unsigned load = 0;
    if (held != node) {
      int from = node;
      while (from >= 0 && walk.place[from] < 0) from = walk.tree.parents[from];
      load = from < 0 ? kInitial : unsigned(walk.place[from] + 1) << kLoadShift;
      Rowset again = walk.paths[node] & ~(from < 0 ? 0 : walk.paths[from]);
      for (; again; again &= again - 1) {
        push(unsigned(lowest(again)) | kKeep | load);
        load = 0;
      }
      held = node;
    }
    if (!(inner >> next & 1)) {
      push(next | kOutput | load);
      continue;
    }
    if (walk.place[node] >= 0 && !(walk.left[node] & inner)) {
      // The last child to need it: its entry loads before it keeps.
      free |= 1u << walk.place[node];
      walk.place[node] = -1;
    }
    visit(next, load);
    node = next;
  }
  walk.count = count;
}

// Reads a tree and plans the way through it. Returns the number of entries, 0 when the
// launch has failed; `listed` says whether they are in the list, or simply the rows.
template <int PLACES>
__device__ inline int prepare(Walk<PLACES> &walk, Site site, const int *parents, const int *depths,
                              int rows, bool &listed) {
  if (!read_tree(site, parents, depths, rows, walk.tree)) return 0;
  const int row = threadIdx.x;
  const bool follows = row == 0 || row >= rows || walk.tree.parents[row] == row - 1;
  listed = !__syncthreads_and(follows);
  if (!listed) return rows;
  if (row < rows) {
    walk.paths[row] = path_to(walk.tree, row);
    walk.left[row] = 0;
    walk.place[row] = -1;
  }
  __syncthreads();
  if (row > 0 && row < rows) {
    atomicOr(&walk.left[walk.tree.parents[row]], Rowset(1) << row);
  }
  __syncthreads();
  if (row < kMaxTree) {
    const unsigned half = __ballot_sync(kAll, row < rows && walk.left[row] != 0);
    if (row % 32 == 0) walk.inner[row / 32] = half;
  }
  __syncthreads();
  const Rowset inner = Rowset(walk.inner[1]) << 32 | walk.inner[0];
  if (plan_at_once(walk, rows, inner)) return rows;
  if (row == 0) plan(walk, inner);
  __syncthreads();
  return walk.count;
}

}  // namespace ft::delta
