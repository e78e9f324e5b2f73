/* A driver library whose waits fail from the FAIL_WAIT-th on with the status FAIL_STATUS,
 * as do those of a context that an illegal access has killed (700). It is found under the
 * name that is looked for first, libcuda.so; all else comes from libcuda.so.1, which it
 * depends on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

static int number(const char *name, int otherwise) {
  const char *value = getenv(name);
  return value ? atoi(value) : otherwise;
}

int cuStreamSynchronize(void *stream) {
  static int waits;
  if (__atomic_add_fetch(&waits, 1, __ATOMIC_SEQ_CST) >= number("FAIL_WAIT", 1 << 30))
    return number("FAIL_STATUS", 700);
  int (*wait)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "cuStreamSynchronize");
  return wait ? wait(stream) : 999;
}
