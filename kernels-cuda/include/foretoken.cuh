// What every kernel shares: reporting faults, reading the control block.
#pragma once

#include "fault.cuh"

namespace ft {

// Words of the control block (kernel/control.rs of the engine).
constexpr int kRows = 0;
constexpr int kCommitted = 1;
constexpr int kLogitFirst = 2;
constexpr int kLogitRows = 3;

// Which rows an operation covers; the numbers of `RowSet` in ops/bind.rs of the driver.
enum RowSet : unsigned { kAllRows = 0, kLogits = 1, kLogitsCompact = 2 };

// Input row `first + i` goes to output row `i`, `i < count`.
struct Rows {
  int first;
  int count;
};

// Waits for the kernels before this one in the stream; until then only memory that no
// kernel writes (weights) may be read. Every thread of every block comes here, first thing
// but for such reads: a kernel that did not would let its successor overtake. The next
// kernel's blocks may take their places from here on. What reads the control block
// (`live_rows`, `row_set`) calls it; other kernels call it themselves.
__device__ inline void after_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Live rows; none, and the launch fails, when the block names more than `capacity`.
// Every thread gets the same answer.
__device__ inline int live_rows(Site site, const int *control, int capacity) {
  after_previous();
  const int rows = control[kRows];
  if (rows < 0) return fail(site, Code::kNegativeControl, rows), 0;
  if (rows > capacity) return fail(site, Code::kTooManyRows, rows), 0;
  return rows;
}

// Committed tokens; -1, and the launch fails, when there are none to tell.
__device__ inline int committed(Site site, const int *control) {
  const int tokens = control[kCommitted];
  if (tokens < 0) return fail(site, Code::kNegativeControl, tokens), -1;
  return tokens;
}

// Rows of a set, checked against the rows of inputs and outputs.
__device__ inline Rows row_set(Site site, const int *control, unsigned set, int inputs,
                               int outputs) {
  after_previous();
  const int first = set == kLogits ? control[kLogitFirst] : 0;
  const int count = set == kAllRows ? control[kRows] : control[kLogitRows];
  if (first < 0 || count < 0) {
    return fail(site, Code::kNegativeControl, min(first, count)), Rows{0, 0};
  }
  if (count > outputs || count > inputs || first > inputs - count) {
    return fail(site, Code::kTooManyRows, count), Rows{0, 0};
  }
  return Rows{first, count};
}

}  // namespace ft
