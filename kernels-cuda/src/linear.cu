// Around the products: activations as they read them, and sums of their slices.

#include "linear.cuh"

namespace {

// Orders of inputs: fragment.cuh.
enum Order : unsigned { kBlocks = 0, kScalars = 1, kBfloatScalars = 2 };

constexpr int kPackThreads = 1024;  // at most

// Largest of a block of whole warps, the same for each thread.
__device__ float block_largest(float x) {
  __shared__ float each[kPackThreads / 32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  if (threadIdx.x % 32 == 0) each[threadIdx.x / 32] = x;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  x = lane < static_cast<int>(blockDim.x) / 32 ? each[lane] : 0.0f;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}

// A row of activations by fours; zero past its end.
struct Row {
  const float *from;
  int k;
  bool wide;

  __device__ Row(const float *row, int width) : from(row), k(width) {
    wide = reinterpret_cast<uintptr_t>(row) % 16 == 0;
  }
  __device__ float4 at(int i) const {
    if (wide && i + 4 <= k) return *reinterpret_cast<const float4 *>(from + i);
    float x[4];
#pragma unroll
    for (int j = 0; j < 4; j++) x[j] = i + j < k ? from[i + j] : 0.0f;
    return make_float4(x[0], x[1], x[2], x[3]);
  }
};

__device__ float largest_of(float4 x) {
  return fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
}

// Two registers of an operand.
__device__ uint2 pack4(unsigned order, float4 x, float up) {
  x = make_float4(__fmul_rn(x.x, up), __fmul_rn(x.y, up), __fmul_rn(x.z, up),
                  __fmul_rn(x.w, up));
  if (order == kBlocks) return make_uint2(ft::pack_half(x.x, x.z), ft::pack_half(x.y, x.w));
  if (order == kScalars) return make_uint2(ft::pack_half(x.x, x.y), ft::pack_half(x.z, x.w));
  return make_uint2(ft::pack_bfloat(x.x, x.y), ft::pack_bfloat(x.z, x.w));
}

}  // namespace

// Packs rows of `x`, [inputs][k], into B operands: [group][pair][8-row tile][lane][16 bytes],
// lane `4 g + t` having row g of the tile, `tiles` tiles to a group. For f16 the largest
// magnitude of a row is scaled into 2^14 .. 2^15 by a power of two (down from 2^-100 at
// least), whose inverse is its factor; smaller values keep eleven bits down to 2^-28 of the
// largest. NaN and infinity stay what they are. Inputs past k and rows that fill up a group
// are zero.
// Grid: one block of whole warps for each row; a row alone decides its bits. A thread has
// every blockDim-th piece of two times four inputs, the first kHeld of them read once.
// Bound: one way to memory and one reduction.
extern "C" __global__ __launch_bounds__(kPackThreads) void linear_pack(
    ft::Site site, const int *control, unsigned set, int inputs, int outputs, const float *x,
    int k, unsigned order, int pairs, int tiles, uint4 *packed, float *factors) {
  constexpr int kHeld = 3;
  const ft::Rows rows = ft::row_set(site, control, set, inputs, outputs);
  const int row = blockIdx.x;
  const int whole = 8 * tiles;
  if (row >= (rows.count + whole - 1) / whole * whole) return;
  const int group = row / 8 / tiles, tile = row / 8 % tiles;
  uint4 *to = packed + (static_cast<int64_t>(group) * pairs * tiles + tile) * 32 + row % 8 * 4;
  const int pieces = pairs * 4;
  auto place = [&](int piece) -> uint4 & {
    return to[static_cast<int64_t>(piece / 4) * tiles * 32 + piece % 4];
  };
  if (row >= rows.count) {
    for (int piece = threadIdx.x; piece < pieces; piece += blockDim.x) {
      place(piece) = make_uint4(0, 0, 0, 0);
    }
    if (threadIdx.x == 0) factors[row] = 1.0f;
    return;
  }

  const Row from(x + static_cast<int64_t>(rows.first + row) * k, k);
  const int apart = order == kBlocks ? 32 : 4;
  auto first_of = [&](int piece) {
    const int pair = piece / 4, t = piece % 4;
    return order == kBlocks ? pair / 8 * 256 + 64 * t + pair % 8 * 4 : pair * 32 + 8 * t;
  };
  float4 held[kHeld][2];
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece >= pieces) break;
    held[i][0] = from.at(first_of(piece));
    held[i][1] = from.at(first_of(piece) + apart);
  }
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    if (static_cast<int>(threadIdx.x + i * blockDim.x) >= pieces) break;
    largest = fmaxf(largest, fmaxf(largest_of(held[i][0]), largest_of(held[i][1])));
  }
  for (int piece = threadIdx.x + kHeld * blockDim.x; piece < pieces; piece += blockDim.x) {
    const float4 a = from.at(first_of(piece)), b = from.at(first_of(piece) + apart);
    largest = fmaxf(largest, fmaxf(largest_of(a), largest_of(b)));
  }
  float up = 1.0f, down = 1.0f;
  if (order != kBfloatScalars) {
    largest = block_largest(largest);
    const int biased = static_cast<int>(__float_as_uint(largest) >> 23);
    const int exponent = min(127, max(-100, biased - 127));
    up = __uint_as_float(static_cast<unsigned>(14 - exponent + 127) << 23);
    down = __uint_as_float(static_cast<unsigned>(exponent - 14 + 127) << 23);
  }
  if (threadIdx.x == 0) factors[row] = down;
  auto put = [&](int piece, float4 a, float4 b) {
    const uint2 low = pack4(order, a, up), high = pack4(order, b, up);
    place(piece) = make_uint4(low.x, low.y, high.x, high.y);
  };
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece < pieces) put(piece, held[i][0], held[i][1]);
  }
  for (int piece = threadIdx.x + kHeld * blockDim.x; piece < pieces; piece += blockDim.x) {
    put(piece, from.at(first_of(piece)), from.at(first_of(piece) + apart));
  }
}

// Adds up the planes of a step, [slice][row][n]: in order of slices.
// Grid: blocks of 256 threads for features, then rows.
extern "C" __global__ __launch_bounds__(256) void linear_sum(
    ft::Site site, const int *control, unsigned set, int inputs, int outputs, const float *planes,
    const float *factors, int slices, int n, float scale, unsigned accumulate, float *out) {
  const ft::Rows rows = ft::row_set(site, control, set, inputs, outputs);
  const int row = blockIdx.y, feature = blockIdx.x * 256 + threadIdx.x;
  if (row >= rows.count || feature >= n) return;
  const float *at = planes + static_cast<int64_t>(row) * n + feature;
  const int64_t plane = static_cast<int64_t>(rows.count) * n;
  float parts[16];
#pragma unroll
  for (int s = 0; s < 16; s++) parts[s] = s < slices ? at[s * plane] : 0.0f;
  float sum = parts[0];
#pragma unroll
  for (int s = 1; s < 16; s++) {
    if (s < slices) sum = __fadd_rn(sum, parts[s]);
  }
  ft::linear::put(factors, scale, accumulate, out, n, row, feature, sum);
}
