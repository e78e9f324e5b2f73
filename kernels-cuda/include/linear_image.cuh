// Weights to images (linear_wgmma.cuh): every value as the other kernels have it.
#pragma once

#include "linear_prefill.cuh"
#include "wgmma.cuh"

namespace ft::linear {

constexpr int kUnpackUnits = 4;  // of a warp

// A warp decodes 16 rows of kUnpackUnits units, a line at a time, through one of two places
// in shared memory, from where it is copied out while the next line is decoded. Stored bytes
// of the next unit are on their way meanwhile.
// The image begins with row `begin` of the weight. Its rows past n are the last one; they are
// multiplied and dropped.
// Source (linear_prefill.cuh) knows how weights lie in memory.
// Grid (32 rows, kUnpackUnits units), 64 threads; bound by the bytes of the image.
template <class Source>
__device__ inline void unpack(const Operands &o, int begin, int padded, uint8_t *image) {
  constexpr int kLines = Source::kUnit / 64, kLine = 16 * 128;
  __shared__ alignas(128) uint8_t out[2][2][kLine];
  __shared__ alignas(16) uint8_t in[2][2 * Source::kStage + 16];  // words are read a little past
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int row0 = (blockIdx.x * 2 + warp) * 16;
  const int units = (o.k + Source::kUnit - 1) / Source::kUnit;
  const int first = blockIdx.y * kUnpackUnits, last = min(units, first + kUnpackUnits);
  Source source(o, in[warp], begin + row0, lane);
  const int64_t line_bytes = static_cast<int64_t>(padded) * 128;
  uint8_t *to = image + first * kLines * line_bytes + static_cast<int64_t>(row0) * 128;
  if (first < last) source.load(first % 2, first);
  copies_commit();
  after_previous();  // which may still read the image that was there
  for (int unit = first; unit < last; unit++) {
    __syncwarp();
    if (unit + 1 < last) source.load((unit + 1) % 2, unit + 1);
    copies_commit();
    copies_wait<1>();
    __syncwarp();
    source.begin(unit % 2, unit);
#pragma unroll
    for (int line = 0; line < kLines; line++, to += line_bytes) {
      uint8_t *place = out[warp][line % 2];
      if (lane == 0) hopper::bulk_wait_read<1>();
      __syncwarp();
#pragma unroll
      for (int p = 0; p < 2; p++) {
        uint32_t a[2][4];
        source.pair(line * 2 + p, a);
#pragma unroll
        for (int s = 0; s < 2; s++) {
#pragma unroll
          for (int r = 0; r < 2; r++) {
            uint8_t *row = place + (g + 8 * r) * 128 + 4 * t;
            const int piece = 4 * p + 2 * s;
            *reinterpret_cast<uint32_t *>(row + ((piece ^ g) * 16)) = a[s][r];
            *reinterpret_cast<uint32_t *>(row + (((piece + 1) ^ g) * 16)) = a[s][r + 2];
          }
        }
      }
      hopper::bulk_fence();
      __syncwarp();
      if (lane == 0) {
        hopper::bulk_store(to, hopper::shared_address(place), kLine);
        hopper::bulk_commit();
      }
    }
  }
  if (lane == 0) hopper::bulk_wait<0>();
}

}  // namespace ft::linear
