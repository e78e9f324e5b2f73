// Keys and values: into the cache, and together after a walk.
//
// kv_append: row i of k and v [M, W] f32 (W = Hkv * head_dim) to slot committed + i of the
//            caches [context, W] of f32, f16 or bf16 each, rounded to nearest, ties to even.
//            Grid (tiles * M, 2): keys, then values; a thread takes four elements.
// kv_commit: slot committed + path[i] to slot committed + i, for keys and values. Grid
//            (columns, 2); a thread moves one column, a unit of 2, 4 or 16 bytes, of all
//            rows, so that no row is overwritten before it has moved.
// Bound: memory; at few rows one latency, two to a batch of 8 rows moved.

#include "foretoken.cuh"
#include "path.cuh"
#include "wide.cuh"

namespace {

// Types of a cache; the numbers of ops/kv.rs of the driver.
enum CacheType : unsigned { kF32 = 0, kF16 = 1, kBF16 = 2 };

// Elements of a row that a block of kv_append takes.
constexpr int kTile = 1024;

__device__ unsigned to_half(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

// In integers, for the architectures that have no instruction for it.
__device__ unsigned to_bfloat(float x) {
  const unsigned bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

__device__ unsigned to_short(float x, unsigned type) {
  return type == kF16 ? to_half(x) : to_bfloat(x);
}


__device__ void store(void *cache, long long row, int first, int n, float4 x, unsigned type,
                      bool wide) {
  if (type == kF32) return ft::store4(static_cast<float *>(cache) + row, first, n, x, wide);
  const unsigned a = to_short(x.x, type), b = to_short(x.y, type);
  const unsigned c = to_short(x.z, type), d = to_short(x.w, type);
  unsigned short *to = static_cast<unsigned short *>(cache) + row + first;
  if (wide) {
    *reinterpret_cast<uint2 *>(to) = make_uint2(a | b << 16, c | d << 16);
    return;
  }
  to[0] = static_cast<unsigned short>(a);
  if (first + 1 < n) to[1] = static_cast<unsigned short>(b);
  if (first + 2 < n) to[2] = static_cast<unsigned short>(c);
  if (first + 3 < n) to[3] = static_cast<unsigned short>(d);
}

template <class Unit>
__device__ void commit(ft::Site site, const int *control, const int *words, Unit *k, Unit *v,
                       int capacity, int context, int k_units, int v_units) {
  __shared__ int path[ft::kTreeRows];
  const ft::Counts counts = ft::checked_counts(site, control, capacity);
  const int rows = counts.rows, committed = counts.committed;
  if (rows < 0) return;
  if (committed > context - rows) return ft::fail(site, ft::Code::kPastCache, committed);
  const int count = ft::read_path(site, words, capacity, rows, path);
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int units = blockIdx.y ? v_units : k_units;
  if (count < 0 || column >= units) return;
  const auto slot = [committed](int row) { return static_cast<long long>(committed) + row; };
  ft::compact(blockIdx.y ? v : k, units, column, path, count, slot);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
    kv_append(ft::Site site, const int *control, const float *k, const float *v, void *k_cache,
              void *v_cache, int capacity, int width, int context, int tiles, unsigned k_type,
              unsigned v_type, unsigned wide) {
  const ft::Counts counts = ft::checked_counts(site, control, capacity);
  const int rows = counts.rows, first_slot = counts.committed;
  if (rows < 0) return;
  if (first_slot > context - rows) return ft::fail(site, ft::Code::kPastCache, first_slot);
  const int row = blockIdx.x / tiles;
  const int first = blockIdx.x % tiles * kTile + 4 * threadIdx.x;
  if (row >= rows || first >= width) return;
  const bool values = blockIdx.y;
  const float *from = (values ? v : k) + static_cast<long long>(row) * width;
  const long long slot = (static_cast<long long>(first_slot) + row) * width;
  store(values ? v_cache : k_cache, slot, first, width, ft::load4(from, first, width, wide),
        values ? v_type : k_type, wide);
}

extern "C" __global__ void __launch_bounds__(128)
    kv_commit_2(ft::Site site, const int *control, const int *words, unsigned short *k,
                unsigned short *v, int capacity, int context, int k_units, int v_units) {
  commit(site, control, words, k, v, capacity, context, k_units, v_units);
}

extern "C" __global__ void __launch_bounds__(128)
    kv_commit_4(ft::Site site, const int *control, const int *words, unsigned *k, unsigned *v,
                int capacity, int context, int k_units, int v_units) {
  commit(site, control, words, k, v, capacity, context, k_units, v_units);
}

extern "C" __global__ void __launch_bounds__(128)
    kv_commit_16(ft::Site site, const int *control, const int *words, uint4 *k, uint4 *v,
                 int capacity, int context, int k_units, int v_units) {
  commit(site, control, words, k, v, capacity, context, k_units, v_units);
}
