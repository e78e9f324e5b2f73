// The ring of features that a drafter reads: [R, W] f32, position p in slot p % R.
//
// feature_store:  row i of x [M, D] to columns column .. column + D of the slot of
//                 position committed + i.
// feature_load:   the slot of position committed + i to row i of out [M, W].
// feature_commit: the slot of position committed + path[i] to that of committed + i, all
//                 columns; a thread moves one column of all rows, 4 or 16 bytes of it.
// Rows are copied by blocks of 1024 columns, four to a thread. Bound: memory.

#include "foretoken.cuh"
#include "path.cuh"
#include "wide.cuh"

namespace {

// Columns that a block copies; ops/feature.rs of the driver knows it.
constexpr int kTile = 1024;

// The slot of the position `row` after `committed`; neither is negative.
__device__ long long slot_of(int committed, int row, int slots) {
  const unsigned position = static_cast<unsigned>(committed) + static_cast<unsigned>(row);
  return position % static_cast<unsigned>(slots);
}

template <class Unit>
__device__ void commit(ft::Site site, const int *control, const int *words, Unit *ring,
                       int capacity, int slots, int units) {
  __shared__ int path[ft::kTreeRows];
  const ft::Counts counts = ft::checked_counts(site, control, capacity);
  const int rows = counts.rows, committed = counts.committed;
  if (rows < 0) return;
  const int count = ft::read_path(site, words, capacity, rows, path);
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (count < 0 || column >= units) return;
  const auto slot = [=](int row) { return slot_of(committed, row, slots); };
  ft::compact(ring, units, column, path, count, slot);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
    feature_store(ft::Site site, const int *control, const float *x, float *ring, int capacity,
                  int columns, int slots, int width, int column, int tiles, unsigned wide) {
  const ft::Counts counts = ft::checked_counts(site, control, capacity);
  const int rows = counts.rows, committed = counts.committed;
  if (rows < 0) return;
  const int row = blockIdx.x / tiles;
  const int first = blockIdx.x % tiles * kTile + 4 * threadIdx.x;
  if (row >= rows || first >= columns) return;
  const float *from = x + static_cast<long long>(row) * columns;
  float *to = ring + slot_of(committed, row, slots) * width + column;
  ft::store4(to, first, columns, ft::load4(from, first, columns, wide), wide);
}

extern "C" __global__ void __launch_bounds__(256)
    feature_load(ft::Site site, const int *control, const float *ring, float *out, int capacity,
                 int slots, int width, int tiles, unsigned wide) {
  const ft::Counts counts = ft::checked_counts(site, control, capacity);
  const int rows = counts.rows, committed = counts.committed;
  if (rows < 0) return;
  if (rows > slots) return ft::fail(site, ft::Code::kPastRing, rows);
  const int row = blockIdx.x / tiles;
  const int first = blockIdx.x % tiles * kTile + 4 * threadIdx.x;
  if (row >= rows || first >= width) return;
  const float *from = ring + slot_of(committed, row, slots) * width;
  float *to = out + static_cast<long long>(row) * width;
  ft::store4(to, first, width, ft::load4(from, first, width, wide), wide);
}

extern "C" __global__ void __launch_bounds__(128)
    feature_commit_4(ft::Site site, const int *control, const int *words, unsigned *ring,
                     int capacity, int slots, int units) {
  commit(site, control, words, ring, capacity, slots, units);
}

extern "C" __global__ void __launch_bounds__(128)
    feature_commit_16(ft::Site site, const int *control, const int *words, uint4 *ring,
                      int capacity, int slots, int units) {
  commit(site, control, words, ring, capacity, slots, units);
}
