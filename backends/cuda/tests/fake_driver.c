/* Stands in for libcuda in a test: two devices, failures on demand, and complaints
 * about a context that is not retained, pushed, popped and released in that order.
 * FAKE_INIT: what cuInit returns. FAKE_BAD: the device that answers nothing.
 * FAKE_VERSION: of CUDA. FAKE_TWINS: the second device is like the first. */
#include <stdlib.h>
#include <string.h>

/* Contexts are retained any number of times, pushed on one thread at a time each. */
static int retained[2];
static __thread int pushed;

/* With fake_work.c: bytes in use. */
__attribute__((weak)) size_t fake_used(void) { return 0; }
int fake_entered(void) { return pushed; }

static int number(const char *name, int otherwise) {
  const char *value = getenv(name);
  return value ? atoi(value) : otherwise;
}

int cuInit(unsigned flags) { return flags ? 1 : number("FAKE_INIT", 0); }
int cuDriverGetVersion(int *version) { return *version = number("FAKE_VERSION", 13000), 0; }
int cuDeviceGetCount(int *count) { return *count = 2, 0; }
int cuDeviceGet(int *device, int ordinal) {
  return ordinal < 2 ? (*device = 40 + ordinal, 0) : 101;
}

int cuDeviceGetName(char *name, int length, int device) {
  strncpy(name, device == 40 ? "Fake H200" : "Fake Thor", length);
  return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  return *bytes = (size_t)(device == 40 ? 140 : 128) << 30, 0;
}

int cuDeviceGetAttribute(int *value, int which, int device) {
  int big = device == 40 || number("FAKE_TWINS", 0);
  if (device == 40 + number("FAKE_BAD", -1)) return 101;
  switch (which) {
  case 10: return *value = 32, 0;
  case 16: return *value = big ? 132 : 20, 0;
  case 18: return *value = !big, 0;
  case 38: return *value = (big ? 60 : 32) << 20, 0;
  case 39: return *value = 2048, 0;
  case 75: return *value = big ? 9 : 11, 0;
  case 76: return *value = 0, 0;
  case 95: return *value = 1, 0;
  case 81: return *value = 228 << 10, 0;
  case 97: return *value = 227 << 10, 0;
  }
  return 1;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = &retained[device - 40];
  return __atomic_fetch_add(&retained[device - 40], 1, __ATOMIC_SEQ_CST) < 0 ? 200 : 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  return __atomic_fetch_sub(&retained[device - 40], 1, __ATOMIC_SEQ_CST) > 0 ? 0 : 201;
}

static int device_of(void *context) { return (int)((int *)context - retained); }

int cuCtxPushCurrent_v2(void *context) {
  int device = device_of(context);
  if (device < 0 || device > 1 || retained[device] <= 0) return 202;
  /* Within another call only of the same device. */
  if (pushed && pushed % 2 != device) return 202;
  return pushed += 2, pushed = pushed / 2 * 2 + device, 0;
}

int cuCtxPopCurrent_v2(void **context) {
  if (pushed < 2) return 203;
  *context = &retained[pushed % 2];
  return pushed -= 2, pushed < 2 ? (pushed = 0) : 0;
}

int cuMemGetInfo_v2(size_t *free, size_t *total) {
  if (!pushed) return 204;
  *total = (size_t)140 << 30;
  return *free = ((size_t)(pushed % 2 + 100) << 30) - fake_used(), 0;
}

int cuGetErrorName(int status, const char **text) {
  *text = status == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : NULL;
  return *text ? 0 : 1;
}

int cuGetErrorString(int status, const char **text) {
  *text = status == 803 ? "system has unsupported display driver" : NULL;
  return *text ? 0 : 1;
}
