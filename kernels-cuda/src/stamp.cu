// The device's clock.

#include "foretoken.cuh"

// Nanoseconds of the clock that all multiprocessors share, to one slot.
extern "C" __global__ void stamp(ft::Site, long long *clock, unsigned slot) {
  ft::after_previous();
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  clock[slot] = static_cast<long long>(now);
}
