/* The other half of the stand-in: device memory is host memory, every kernel a stamp that
 * runs when it is launched. FAKE_REPORT: the code that kernels report, with value 77.
 * FAKE_SYNC, FAKE_LOAD, FAKE_HOST_ALLOC: what waiting for a stream, loading code and
 * allocating pinned memory return. FAKE_PARAMETER: size of the last parameter.
 * FAKE_MORE: parameters after it. FAKE_ROOM: MiB of device memory that can be had. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern int fake_entered(void);
static const size_t TOTAL = (size_t)140 << 30;
static size_t used;

static int number(const char *name, int otherwise) {
  const char *value = getenv(name);
  return value ? atoi(value) : otherwise;
}

#define ENTERED() do { if (!fake_entered()) return 201; } while (0)

size_t fake_used(void) { return __atomic_load_n(&used, __ATOMIC_SEQ_CST); }

int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
  ENTERED();
  if (!bytes) return 1;
  if (bytes > TOTAL / 2) return 2;
  if (fake_used() + bytes > (size_t)number("FAKE_ROOM", 1 << 20) << 20) return 2;
  size_t *block = aligned_alloc(256, (bytes + 511) / 256 * 256);
  if (!block) return 2;
  block[0] = bytes;
  __atomic_fetch_add(&used, bytes, __ATOMIC_SEQ_CST);
  return *address = (unsigned long long)(size_t)block + 256, 0;
}

int cuMemFree_v2(unsigned long long address) {
  ENTERED();
  size_t *block = (size_t *)(size_t)(address - 256);
  __atomic_fetch_sub(&used, block[0], __ATOMIC_SEQ_CST);
  return free(block), 0;
}

int cuMemHostAlloc(void **host, size_t bytes, unsigned flags) {
  ENTERED();
  if (number("FAKE_HOST_ALLOC", 0)) return number("FAKE_HOST_ALLOC", 0);
  (void)flags;
  *host = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *host ? 0 : 2;
}

int cuMemHostGetDevicePointer_v2(unsigned long long *address, void *host, unsigned flags) {
  ENTERED();
  return *address = (size_t)host, flags ? 1 : 0;
}

int cuMemFreeHost(void *host) {
  ENTERED();
  return free(host), 0;
}

int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *stream) {
  ENTERED();
  return memcpy((void *)(size_t)to, from, bytes), stream ? 0 : 400;
}

int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *stream) {
  ENTERED();
  return memcpy(to, (void *)(size_t)from, bytes), stream ? 0 : 400;
}

int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes,
                         void *stream) {
  ENTERED();
  return memcpy((void *)(size_t)to, (void *)(size_t)from, bytes), stream ? 0 : 400;
}

/* FAKE_PEERS: whether devices reach each other. FAKE_TORN: bytes from which on copies between
 * contexts lose their last byte. FAKE_REFUSED: what such copies return. */
int cuMemcpyPeerAsync(unsigned long long to, void *receiver, unsigned long long from,
                      void *sender, size_t bytes, void *stream) {
  ENTERED();
  if (!receiver || !sender || !stream) return 400;
  if (number("FAKE_REFUSED", 0)) return number("FAKE_REFUSED", 0);
  size_t torn = (size_t)number("FAKE_TORN", 1 << 30);
  return memcpy((void *)(size_t)to, (void *)(size_t)from, bytes - (bytes >= torn)), 0;
}

int cuDeviceCanAccessPeer(int *can, int device, int peer) {
  return *can = device != peer && number("FAKE_PEERS", 1), 0;
}

/* Again and again is an error that says so. */
int cuCtxEnablePeerAccess(void *peer, unsigned flags) {
  static void *enabled[2];
  int device = fake_entered() % 2;
  ENTERED();
  if (enabled[device] == peer) return 704;
  enabled[device] = peer;
  return flags ? 1 : 0;
}

/* There are primary contexts only. */
int cuCtxCreate_v4(void **context, void *parameters, unsigned flags, int device) {
  (void)context, (void)parameters, (void)flags, (void)device;
  return 801;
}
int cuCtxDestroy_v2(void *context) { return context ? 801 : 201; }

int cuMemsetD8Async(unsigned long long at, unsigned char value, size_t bytes, void *stream) {
  ENTERED();
  return memset((void *)(size_t)at, value, bytes), stream ? 0 : 400;
}

static int handle(void **out) {
  ENTERED();
  return (*out = malloc(8)) ? 0 : 2;
}

static int gone(void *handle) {
  ENTERED();
  return free(handle), 0;
}

int cuStreamCreate(void **stream, unsigned flags) { return flags == 1 ? handle(stream) : 1; }
int cuStreamDestroy_v2(void *stream) { return gone(stream); }
int cuStreamSynchronize(void *stream) {
  ENTERED();
  return stream ? number("FAKE_SYNC", 0) : 400;
}
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  ENTERED();
  return stream && event && !flags ? 0 : 400;
}
int cuEventCreate(void **event, unsigned flags) { return flags == 2 ? handle(event) : 1; }
int cuEventRecord(void *event, void *stream) {
  ENTERED();
  return stream && event ? 0 : 400;
}
int cuEventSynchronize(void *event) {
  ENTERED();
  return event ? 0 : 400;
}
int cuEventDestroy_v2(void *event) { return gone(event); }

int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options,
                       void **values) {
  /* A fatbin begins with this. Options 5 and 6 are the error log and its size. */
  unsigned magic;
  memcpy(&magic, image, 4);
  if (magic != 0xba55ed50 || (size_t)image % 16) return 200;
  if (count != 2 || options[0] != 5 || options[1] != 6) return 1;
  if (number("FAKE_LOAD", 0)) {
    strncpy(values[0], "ptxas fatal\nbad version\n", (size_t)values[1]);
    return number("FAKE_LOAD", 0);
  }
  return handle(module);
}

int cuModuleUnload(void *module) { return gone(module); }

int cuModuleGetFunction(void **function, void *module, const char *name) {
  ENTERED();
  *function = module;
  return strcmp(name, "stamp") ? 500 : 0;
}

int cuFuncGetAttribute(int *value, int which, void *function) {
  ENTERED();
  if (!function) return 400;
  return *value = which == 0 ? 1024 : 0, which <= 1 ? 0 : 1;
}

int cuFuncSetAttribute(void *function, int which, int value) {
  ENTERED();
  return function && which == 8 && value > 48 << 10 ? 0 : 1;
}

int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size) {
  ENTERED();
  size_t sizes[] = {16, 8, (size_t)number("FAKE_PARAMETER", 4), 4}, offsets[] = {0, 16, 24, 32};
  if (!function || index >= 3 + (size_t)number("FAKE_MORE", 0)) return 1;
  return *offset = offsets[index], *size = sizes[index], 0;
}

struct site {
  volatile int *fault;
  unsigned kernel, reserved;
};

static void stamp(struct site site, long long *clock, unsigned slot) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  clock[slot] = now.tv_sec * 1000000000ll + now.tv_nsec;
  int code = number("FAKE_REPORT", 0);
  if (code) site.fault[0] = (int)site.kernel, site.fault[1] = code, site.fault[2] = 77;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                   unsigned by, unsigned bz, unsigned shared, void *stream, void **parameters,
                   void **extra) {
  ENTERED();
  if (!function || !stream || extra || shared || gx * gy * gz * bx * by * bz != 1) return 1;
  stamp(*(struct site *)parameters[0], *(long long **)parameters[1],
        *(unsigned *)parameters[2]);
  return 0;
}

/* A graph is an array of nodes, in the order in which they were added. */
struct node {
  struct site site;
  long long *clock;
  unsigned slot;
};
struct graph {
  size_t edges;
  size_t count;
  struct node nodes[1024];
};
struct parameters {
  void *function;
  unsigned grid[3], block[3], shared;
  void **parameters, **extra;
  void *kernel, *context;
};

int cuGraphCreate(void **graph, unsigned flags) {
  ENTERED();
  return (*graph = calloc(1, sizeof(struct graph))) && !flags ? 0 : 2;
}

int cuGraphAddKernelNode_v2(void **node, struct graph *graph, void **after, size_t count,
                            const struct parameters *p) {
  ENTERED();
  // Every node but the first has had its edge before the next one comes.
  if (count || after || graph->count == 1024) return 1;
  if (graph->count && graph->edges != graph->count - 1) return 1;
  if (!p->function || p->grid[0] != 1 || p->block[0] != 1 || p->extra) return 1;
  struct node new = {*(struct site *)p->parameters[0], *(long long **)p->parameters[1],
                     *(unsigned *)p->parameters[2]};
  graph->nodes[graph->count] = new;
  return *node = &graph->nodes[graph->count++], 0;
}

int cuGraphAddDependencies_v2(struct graph *graph, void *const *from, void *const *to,
                              const unsigned char *edge, size_t count) {
  ENTERED();
  if (count != 1 || graph->edges + 2 != graph->count) return 1;
  if (*from != &graph->nodes[graph->edges] || *to != &graph->nodes[graph->edges + 1]) return 1;
  return edge[0] > 1 || edge[0] != edge[2] ? 1 : (graph->edges++, 0);
}

int cuGraphInstantiateWithFlags(void **executable, struct graph *graph,
                                unsigned long long flags) {
  ENTERED();
  if (!(*executable = malloc(sizeof *graph)) || flags) return 2;
  return memcpy(*executable, graph, sizeof *graph), 0;
}

int cuGraphLaunch(struct graph *executable, void *stream) {
  ENTERED();
  for (size_t i = 0; i < executable->count; i++) {
    struct node *node = &executable->nodes[i];
    stamp(node->site, node->clock, node->slot);
  }
  return stream ? 0 : 400;
}

int cuGraphExecDestroy(void *executable) { return gone(executable); }
int cuGraphDestroy(void *graph) { return gone(graph); }
