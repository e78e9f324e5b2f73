// Four neighbouring floats at a time, with one wide access where the address allows it.
#pragma once

namespace ft {

// Elements `first .. first + 4` of `n`; those past the end are 0. `wide` says that rows lie
// on multiples of 16 bytes and hold a multiple of four.
__device__ inline float4 load4(const float *row, int first, int n, bool wide) {
  if (wide) return *reinterpret_cast<const float4 *>(row + first);
  float4 x = make_float4(row[first], 0.0f, 0.0f, 0.0f);
  if (first + 1 < n) x.y = row[first + 1];
  if (first + 2 < n) x.z = row[first + 2];
  if (first + 3 < n) x.w = row[first + 3];
  return x;
}

// The way back.
__device__ inline void store4(float *row, int first, int n, float4 x, bool wide) {
  if (wide) {
    *reinterpret_cast<float4 *>(row + first) = x;
    return;
  }
  row[first] = x.x;
  if (first + 1 < n) row[first + 1] = x.y;
  if (first + 2 < n) row[first + 2] = x.z;
  if (first + 3 < n) row[first + 3] = x.w;
}

}  // namespace ft
