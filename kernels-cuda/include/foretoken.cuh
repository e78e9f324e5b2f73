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

// Waits for the kernels before this one in the stream; until then only memory may be read that
// none of them can be writing still: weights, and with `ahead` what the predecessor does not
// write. Every thread of every block comes here. The next kernel's blocks may take their
// places from here on. What reads the control block (`live_rows`, `row_set`) calls it; other
// kernels call it themselves.
__device__ inline void after_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Reads a word that no kernel can be writing that may still run: a kernel takes its place
// when all blocks of its predecessor are past `after_previous`, so that those before that one
// have ended; and where the predecessor writes such words the driver has a graph wait for its
// end (`Launch::publishes`). Past the first-level cache, which may hold it as it was.
__device__ inline int ahead(const int *word) {
  int value;
  asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

// Live rows; -1, and the launch fails, when the block names more than `capacity`. Every thread
// gets the same answer.
// Does not wait.
__device__ inline int rows_ahead(Site site, const int *control, int capacity) {
  const int rows = ahead(control + kRows);
  if (rows < 0) return fail(site, Code::kNegativeControl, rows), -1;
  if (rows > capacity) return fail(site, Code::kTooManyRows, rows), -1;
  return rows;
}

// The same, after the predecessor.
__device__ inline int checked_rows(Site site, const int *control, int capacity) {
  const int rows = rows_ahead(site, control, capacity);
  after_previous();
  return rows;
}

// The same, but none when the launch fails.
__device__ inline int live_rows(Site site, const int *control, int capacity) {
  return max(0, checked_rows(site, control, capacity));
}

// What a kernel covers: live rows, and committed tokens before them.
struct Counts {
  int rows, committed;
};

// Both; -1 rows, and the launch fails, as in `checked_rows` and when there are no committed
// tokens to tell.
__device__ inline Counts checked_counts(Site site, const int *control, int capacity) {
  const int committed = ahead(control + kCommitted);
  Counts counts{checked_rows(site, control, capacity), committed};
  if (counts.rows >= 0 && committed < 0) {
    fail(site, Code::kNegativeControl, committed);
    counts.rows = -1;
  }
  return counts;
}

// Rows of a set, checked against the rows of inputs and outputs.
__device__ inline Rows row_set(Site site, const int *control, unsigned set, int inputs,
                               int outputs) {
  const int first = set == kLogits ? ahead(control + kLogitFirst) : 0;
  const int count = ahead(control + (set == kAllRows ? kRows : kLogitRows));
  after_previous();
  if (first < 0 || count < 0) {
    return fail(site, Code::kNegativeControl, min(first, count)), Rows{0, 0};
  }
  if (count > outputs || count > inputs || first > inputs - count) {
    return fail(site, Code::kTooManyRows, count), Rows{0, 0};
  }
  return Rows{first, count};
}

}  // namespace ft
