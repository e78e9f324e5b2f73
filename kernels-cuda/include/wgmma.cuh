// Hopper's way to feed its tensor cores: barriers in shared memory, bulk copies that arrive
// at them, and products of a warpgroup with both operands in shared memory. For sm_90a only.
#pragma once

#include <stdint.h>

namespace ft::hopper {

__device__ inline uint32_t shared_address(const void *at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// Barriers are 8 bytes; they are given as addresses of shared memory.
__device__ inline void barrier_make(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes new barriers known to bulk copies and to the other blocks of a cluster.
__device__ inline void barriers_made() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives, and says how many bytes copies will bring.
__device__ inline void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Arrives at the barrier in this place of another block of the cluster, or of this one. It
// says that products have read what they needed, which is so once they have been waited for:
// nothing is published, so no memory is ordered beyond the block. (With the scope of a cluster
// each arrival takes a memory barrier of the whole device, as long as a line's products.)
__device__ inline void barrier_arrive(uint32_t barrier, unsigned block) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
      "r"(block)
      : "memory");
}

// Waits for the end of the phase of this parity.
__device__ inline void barrier_wait(uint32_t barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Copies 16-byte pieces to shared memory, in the background; they arrive at a barrier.
__device__ inline void bulk_load(uint32_t to, const void *from, int bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// The same to this place of every block in `blocks` (a bit each), and to the barriers there.
__device__ inline void bulk_load_to(uint32_t to, const void *from, int bytes, uint32_t barrier,
                                    uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
      : "memory");
}

// Copies from shared memory, in the background, as part of this thread's group. What was
// written to shared memory has to be fenced (`bulk_fence`) by its writers before.
__device__ inline void bulk_store(void *to, uint32_t from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}

__device__ inline void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until all groups of this thread but the newest `kPending` have read their source.
template <int kPending>
__device__ inline void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Waits until all groups of this thread but the newest `kPending` are written.
template <int kPending>
__device__ inline void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ inline void bulk_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of all blocks of the cluster meet.
__device__ inline void cluster_meet() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

template <int kRegisters>
__device__ inline void registers_take() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ inline void registers_give() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Describes rows of 128 bytes in the 128-byte swizzle, eight rows to 1024 aligned bytes:
// piece `c` of row `r` lies at `c ^ (r % 8)`.
__device__ inline uint64_t lines_at(uint32_t at) {
  return static_cast<uint64_t>(at >> 4 & 0x3FFF) | uint64_t{1} << 16 | uint64_t{64} << 32 |
         uint64_t{1} << 62;
}

// Before the first product that follows other uses of the sums.
__device__ inline void products_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits for all groups of products but the newest `kPending`.
template <int kPending>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// `d = a b`, or with `add` `d += a b`, for 64 rows of A, kColumns rows of B and 16 inputs, the
// operands being f16 or bfloat16, both by rows. Of lane `4 g + t` of warp `w`, d[4 j] and
// d[4 j + 1] are row `16 w + g`, columns `8 j + 2 t` and the next; d[4 j + 2], d[4 j + 3] the
// same of row `16 w + g + 8`.
template <bool kBfloat, int kColumns>
struct Product;

#define FT_S4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define FT_S16(i) FT_S4(i), FT_S4(i + 4), FT_S4(i + 8), FT_S4(i + 12)
#define FT_S64(i) FT_S16(i), FT_S16(i + 16), FT_S16(i + 32), FT_S16(i + 48)
#define FT_NAMES_128 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63 "
#define FT_NAMES_160 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79 "
#define FT_NAMES_192 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95 "

#define FT_PRODUCT(bfloat, type, columns, descriptor_a, descriptor_b, adds, ...)        \
  template <>                                                                                   \
  struct Product<bfloat, columns> {                                                             \
    __device__ static void go(float (&d)[columns / 2], uint64_t a, uint64_t b, int add) {        \
      asm volatile(                                                                             \
          "{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds ", 0;\n"                               \
          "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type                 \
          " {" FT_NAMES_##columns "}, " descriptor_a ", " descriptor_b ", adds, 1, 1, 0, 0;\n}" \
          : __VA_ARGS__                                                                         \
          : "l"(a), "l"(b), "r"(add));                                                          \
    }                                                                                           \
  };
#define FT_PRODUCTS(columns, a, b, adds, ...)                           \
  FT_PRODUCT(false, "f16", columns, a, b, adds, __VA_ARGS__)         \
  FT_PRODUCT(true, "bf16", columns, a, b, adds, __VA_ARGS__)

FT_PRODUCTS(128, "%64", "%65", "%66", FT_S64(0))
FT_PRODUCTS(160, "%80", "%81", "%82", FT_S64(0), FT_S16(64))
FT_PRODUCTS(192, "%96", "%97", "%98", FT_S64(0), FT_S16(64), FT_S16(80))

#undef FT_PRODUCTS
#undef FT_PRODUCT
#undef FT_NAMES_128
#undef FT_NAMES_160
#undef FT_NAMES_192
#undef FT_S64
#undef FT_S16
#undef FT_S4

}  // namespace ft::hopper
