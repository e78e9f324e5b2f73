/* Stands in for libamdhip64 in a test: two devices, failures on demand.
 * FAKE_INIT: what hipInit returns. FAKE_BAD: the device that answers nothing. */
#include <stdlib.h>
#include <string.h>

static int current;

static int number(const char *name, int otherwise) {
  const char *value = getenv(name);
  return value ? atoi(value) : otherwise;
}

int hipInit(unsigned flags) { return flags ? 1 : number("FAKE_INIT", 0); }
int hipRuntimeGetVersion(int *version) { return *version = 70051831, 0; }
int hipGetDeviceCount(int *count) { return *count = 2, 0; }
int hipDeviceGet(int *device, int ordinal) {
  return ordinal < 2 ? (*device = ordinal, 0) : 101;
}

int hipDeviceGetName(char *name, int length, int device) {
  strncpy(name, device ? "Fake 8060S" : "Fake 7900", length);
  return 0;
}

int hipDeviceTotalMem(size_t *bytes, int device) {
  return *bytes = (size_t)(device ? 96 : 24) << 30, 0;
}

int hipDeviceGetAttribute(int *value, unsigned which, int device) {
  if (device == number("FAKE_BAD", -1)) return 101;
  switch (which) {
  case 10: return *value = 1, 0;
  case 16: return *value = device, 0;
  case 63: return *value = device ? 20 : 48, 0;
  case 87: return *value = 32, 0;
  case 10015: return device ? 1 : (*value = 96, 0); /* not known to all runtimes */
  }
  return 1;
}

int hipGetDevicePropertiesR0600(char *properties, int device) {
  memset(properties, 'x', 1472);
  strcpy(properties + 1160, device ? "gfx1151" : "gfx1100");
  return 0;
}

int hipGetDevice(int *device) { return *device = current, 0; }
int hipSetDevice(int device) { return current = device, 0; }

int hipMemGetInfo(size_t *free, size_t *total) {
  *total = (size_t)96 << 30;
  return *free = (size_t)(current ? 90 : 20) << 30, 0;
}

const char *hipGetErrorName(int status) {
  return status == 3 ? "hipErrorNotInitialized" : "hipErrorUnknown";
}

const char *hipGetErrorString(int status) {
  return status == 3 ? "initialization error" : NULL;
}
