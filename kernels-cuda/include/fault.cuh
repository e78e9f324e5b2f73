// How a kernel says that the contents of device memory break the contract.
#pragma once

namespace ft {

// In host memory that the device can write. Read by the driver after a wait: see
// device/fault.rs there, which knows the same numbers.
struct alignas(16) Fault {
  unsigned kernel;  // 0: nothing happened; else the number of the kernel, from 1
  unsigned code;
  int value;
  unsigned reserved;
};

// First parameter of every kernel.
struct Site {
  Fault *fault;
  unsigned kernel;
  unsigned reserved;
};

enum class Code : unsigned {
  kNegativeControl = 1,
  kTooManyRows = 2,
  kPastCache = 3,
  kPastRing = 4,
  kPastPositions = 5,
  kNoRows = 6,
  kBadCursor = 7,
  kBadPath = 8,
  kBadTree = 9,
};

// Fails the launch: the driver will say which rule the kernel found broken, and `value`.
// The caller returns without writing its outputs. One thread of a block writes, whole
// records: of several faults one stays.
__device__ inline void fail(Site site, Code code, int value) {
  if (threadIdx.x | threadIdx.y | threadIdx.z) return;
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(site.fault),
               "r"(site.kernel), "r"(static_cast<unsigned>(code)), "r"(value), "r"(0u)
               : "memory");
  __threadfence_system();
}

}  // namespace ft
