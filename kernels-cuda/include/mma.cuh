// Tensor-core products and copies to shared memory, for every architecture from sm_75.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace ft {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
constexpr bool kModern = true;  // cp.async, bfloat16, k16 products
#else
constexpr bool kModern = false;
#endif

// `c += a b` for 16 rows of A, 8 columns of B and 16 inputs. Of lane `4 g + t`, a[0] and a[2]
// are row g, a[1] and a[3] row g + 8, b0 and b1 column g; c[0] and c[1] are row g, columns
// 2 t and 2 t + 1, c[2] and c[3] the same of row g + 8. a[0], a[1], b0 hold two inputs of
// the lane, a[2], a[3], b1 two more: which ones is free as long as A and B agree.
template <bool kBfloat>
__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kBfloat) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b0));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

// Four matrices of 8 by 8 numbers, whose rows of 16 bytes lie at `row` of each lane: that of
// lane l is row l % 8 of matrix l / 8. Of matrix i, lane 4 g + t gets numbers 2 t and
// 2 t + 1 of row g.
__device__ inline void matrices(uint32_t (&x)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(row)
               : "memory");
}

// The same transposed: numbers 2 t and 2 t + 1 of column g.
__device__ inline void transposed(uint32_t (&x)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(row)
               : "memory");
}

__device__ inline uint32_t shared_address(const void *at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// Copies 16 aligned bytes to shared memory. From sm_80 the copy is under way until
// `copies_wait`; before, it is done at once.
__device__ inline void copy16(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
#else
  *static_cast<uint4 *>(to) = __ldg(static_cast<const uint4 *>(from));
#endif
}

// Copies the first `bytes` (0 to 16) of 16 aligned bytes to shared memory, at once, and
// fills up with zeros. Nothing past them is read.
__device__ inline void copy_end(void *to, const uint8_t *from, int bytes) {
  uint64_t low = 0, high = 0;
#pragma unroll 1
  for (int i = bytes - 1; i >= 0; i--) {
    high = high << 8 | low >> 56;
    low = low << 8 | from[i];
  }
  *static_cast<uint4 *>(to) =
      make_uint4(static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                 static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32));
}

// Ends a group of copies of this thread.
__device__ inline void copies_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all groups of this thread but the newest `kPending`.
template <int kPending>
__device__ inline void copies_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

// The two halves `low` and `high` of a register.
__device__ inline uint32_t pack_half(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t &>(both);
}

// The same as bfloat16.
__device__ inline uint32_t pack_bfloat(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t &>(both);
}

__device__ inline __half2 as_half2(uint32_t bits) {
  return reinterpret_cast<const __half2 &>(bits);
}

__device__ inline uint32_t as_bits(__half2 both) {
  return reinterpret_cast<const uint32_t &>(both);
}

}  // namespace ft
