// What a row of an attention sees, and how the keys are split.
#pragma once

#include "ancestry.cuh"

namespace ft {

constexpr int kSplit = 128;  // keys of a split (Attention::SPLIT of the engine)
constexpr int kChunk = 16;   // splits of a chunk

// The numbers of the masks in ops/attention.rs of the driver.
enum Mask : int { kCausal = 0, kTree = 1, kBlock = 2, kCausalBlock = 3 };

// Logical positions.
struct Span {
  int lo, hi;
  __device__ bool empty() const { return hi <= lo; }
};

// One launch, as both kernels of an attention see it.
struct Call {
  int rows, before;  // live rows, tokens before them
  int mask, window;

  // Of a row; `depth` is its depth in the tree. Nothing overflows: before + rows is a slot
  // of the cache.
  __device__ Span span(int row, int depth) const {
    const int own = before + row;
    if (mask == kCausal) return {0, own + 1};
    if (mask == kTree) return {0, before + depth + 1};
    const int end = mask == kCausalBlock ? own + 1 : before + rows;
    return {max(0, own - window + 1), end - own > window ? own + window : end};
  }

  // Splits that some row sees.
  __device__ int first_split() const {
    return mask >= kBlock ? max(0, before - window + 1) / kSplit : 0;
  }
  __device__ int end_split() const { return (before + rows + kSplit - 1) / kSplit; }
};

// Reads the control block. False, and the launch fails, when it names what there is not;
// false without live rows, too. Every thread gets the same answer.
__device__ inline bool read_call(Site site, const int *control, int capacity, int context,
                                 Call &call) {
  const Counts counts = checked_counts(site, control, capacity);
  call.rows = counts.rows;
  call.before = counts.committed;
  if (call.rows <= 0) return false;
  if (call.before <= context - call.rows) return true;
  fail(site, Code::kPastCache, call.before);
  return false;
}

// Maximum and sum of a softmax, unnormalised.
struct Stats {
  float max, sum;
};

// Factors that bring what came before and a later part under one maximum.
struct Factors {
  float before, later;
};

__device__ inline Factors fold(Stats &stats, const Stats &later) {
  const float top = fmaxf(stats.max, later.max);
  const Factors f{expf(stats.max - top), expf(later.max - top)};
  stats.max = top;
  stats.sum = fmaf(stats.sum, f.before, __fmul_rn(later.sum, f.later));
  return f;
}

__device__ inline float fold(float value, float later, const Factors &f) {
  return fmaf(value, f.before, __fmul_rn(later, f.later));
}

}  // namespace ft
