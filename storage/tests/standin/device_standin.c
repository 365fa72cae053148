/*
 * A STAND-IN for the CUDA driver, cuFile and NVML, for tests alone: host memory plays the device. It proves nothing
 * about hardware. The tests build it with `cc` and load it under NVIDIA's file names from a folder of their own; no
 * other part of the project refers to it.
 *
 * What it is strict about, so that mistakes show: device addresses carry a bit that makes them unusable on the host;
 * each device access must lie inside one allocation; a call without a current context fails; asynchronous copies happen
 * no earlier than at the next wait for them, so that a buffer that is used again too soon gives wrong bytes; everything
 * taken and given back is counted (`standin_get`). Faults are set by `standin_set` or, in other processes, by
 * STANDIN_<NAME> in the environment.
 *
 * Signatures and codes: cuda.h, cufile.h and nvml.h as documented in NVIDIA's CUDA driver, cuFile and NVML references.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define TAG (UINT64_C(1) << 62)
#define MOST 4096
#define PUBLIC __attribute__((visibility("default")))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local void *current;
static char context_mark;

/* What is set, and what is counted. */
enum { WAY_P2P, WAY_NVFS, WAY_POSIX };
static struct setting {
    const char *name;
    int64_t value;
} settings[] = {
    {"way", WAY_P2P},    /* how cuFile serves reads: 0 peer to peer, 1 nvidia-fs, 2 POSIX */
    {"short", 0},        /* bytes that one cuFileRead gives at most; 0 for all */
    {"flip", 0},         /* so many next cuFileReads give bytes with a bit turned */
    {"delay_us", 0},     /* time that one cuFileRead takes */
    {"read_errno", 0},   /* cuFileRead fails with -1 and this errno */
    {"read_code", 0},    /* cuFileRead fails with minus this cuFile code */
    {"register_code", 0}, /* cuFileHandleRegister fails with this cuFile code */
    {"buffer_code", 0},  /* cuFileBufRegister fails with this cuFile code */
    {"open_code", 0},    /* cuFileDriverOpen fails with this cuFile code */
    {"stats_code", 0},   /* cuFileGetStatsL3 fails with this cuFile code */
    {"alloc_code", 0},   /* cuMemAlloc fails with this CUDA code */
    {"pin_code", 0},     /* cuMemHostRegister fails with this CUDA code */
    {"copy_code", 0},    /* copies fail with this CUDA code */
    {"devices", 1},      /* CUDA devices */
    {"tagged", 1},       /* whether device addresses are unusable on the host */
    {"utilization", 40}, /* NVML: per cent */
    {"power_mw", 250000},
    {"no_energy", 0},    /* NVML: no energy counter, as before Volta */
    {NULL, 0},
};
enum { CONTEXTS, ALLOCATIONS, PINNED, STREAMS, EVENTS, HANDLES, BUFFERS, DRIVERS, ASYNC_COPIES, UNPINNED_COPIES,
       SYNC_COPIES, READS, UNALIGNED_READS, FORCED_COMPAT, VIOLATIONS, NVML_OPEN, COUNTS };
static const char *count_names[COUNTS] = {"contexts", "allocations", "pinned", "streams", "events", "handles",
    "buffers", "drivers", "async_copies", "unpinned_copies", "sync_copies", "reads", "unaligned_reads", "forced_compat",
    "violations", "nvml"};
static int64_t counts[COUNTS];

static int64_t set_to(const char *name) {
    for (struct setting *s = settings; s->name; s++)
        if (!strcmp(s->name, name)) return s->value;
    return 0;
}

PUBLIC int standin_set(const char *name, int64_t value) {
    for (struct setting *s = settings; s->name; s++)
        if (!strcmp(s->name, name)) return s->value = value, 0;
    return -1;
}

PUBLIC int64_t standin_get(const char *name) {
    for (int i = 0; i < COUNTS; i++)
        if (!strcmp(count_names[i], name)) return __atomic_load_n(&counts[i], __ATOMIC_SEQ_CST);
    return -1;
}

static void count(int what, int64_t by) { __atomic_add_fetch(&counts[what], by, __ATOMIC_SEQ_CST); }

__attribute__((constructor)) static void from_environment(void) {
    for (struct setting *s = settings; s->name; s++) {
        char name[64] = "STANDIN_";
        size_t at = strlen(name);
        for (const char *c = s->name; *c && at < sizeof name - 1; c++) name[at++] = *c >= 'a' && *c <= 'z' ? *c - 32 : *c;
        const char *value = getenv(name);
        if (value) s->value = atoll(value);
    }
}

/* Stretches of memory: allocations of the device, and pinned ones of the host. */
struct stretch { uint64_t at; size_t len; };
static struct stretch device[MOST], host[MOST], registered[MOST];

static int add(struct stretch *list, uint64_t at, size_t len) {
    for (int i = 0; i < MOST; i++)
        if (!list[i].at) return list[i] = (struct stretch){at, len}, 0;
    return -1;
}
static struct stretch *find(struct stretch *list, uint64_t at, size_t len) {
    for (int i = 0; i < MOST; i++)
        if (list[i].at && at >= list[i].at && at + len <= list[i].at + list[i].len) return &list[i];
    return NULL;
}
static struct stretch *starting(struct stretch *list, uint64_t at) {
    for (int i = 0; i < MOST; i++)
        if (list[i].at && list[i].at == at) return &list[i];
    return NULL;
}
static uint8_t *real(uint64_t at) { return (uint8_t *)(uintptr_t)(at & ~TAG); }

/* Work that streams have not done yet. */
struct event { int done; };
struct work { void *stream; struct event *event; uint8_t *to; const uint8_t *from; size_t len; };
static struct work *queue;
static size_t queued, room;

static int enqueue(struct work w) {
    if (queued == room) {
        size_t more = room ? 2 * room : 64;
        struct work *grown = realloc(queue, more * sizeof *queue);
        if (!grown) return 2;
        queue = grown, room = more;
    }
    queue[queued++] = w;
    return 0;
}
/* Does the work of a stream, up to an event if there is one. */
static void do_work(void *stream, struct event *until) {
    size_t kept = 0;
    int stop = 0;
    for (size_t i = 0; i < queued; i++) {
        struct work w = queue[i];
        if (stop || w.stream != stream) { queue[kept++] = w; continue; }
        if (w.event) {
            w.event->done = 1;
            if (w.event == until) stop = 1;
        } else memmove(w.to, w.from, w.len);
    }
    queued = kept;
}
static void violation_if_pending(uint64_t at, size_t len) {
    uintptr_t from = (uintptr_t)real(at);
    for (size_t i = 0; i < queued; i++) {
        if (queue[i].event) continue;
        uintptr_t a = (uintptr_t)queue[i].to, b = (uintptr_t)queue[i].from;
        if ((a < from + len && from < a + queue[i].len) || (b < from + len && from < b + queue[i].len))
            counts[VIOLATIONS]++;
    }
}

/* --- The CUDA driver --- */
typedef int CUresult;
static CUresult ready(void) { return current ? 0 : 201; }

PUBLIC CUresult cuInit(unsigned flags) { (void)flags; return set_to("devices") ? 0 : 100; }
PUBLIC CUresult cuDriverGetVersion(int *version) { *version = 13000; return 0; }
PUBLIC CUresult cuDeviceGetCount(int *n) { *n = (int)set_to("devices"); return 0; }
PUBLIC CUresult cuDeviceGet(int *out, int ordinal) {
    if (ordinal < 0 || ordinal >= set_to("devices")) return 101;
    *out = ordinal;
    return 0;
}
PUBLIC CUresult cuDeviceGetName(char *name, int len, int dev) {
    snprintf(name, (size_t)len, "Tierlab stand-in (no GPU) %d", dev);
    return 0;
}
PUBLIC CUresult cuDevicePrimaryCtxRetain(void **context, int dev) {
    (void)dev;
    *context = &context_mark;
    count(CONTEXTS, 1);
    return 0;
}
PUBLIC CUresult cuDevicePrimaryCtxRelease_v2(int dev) { (void)dev; count(CONTEXTS, -1); return 0; }
PUBLIC CUresult cuCtxSetCurrent(void *context) { current = context; return 0; }
PUBLIC CUresult cuMemAlloc_v2(uint64_t *out, size_t len) {
    if (ready()) return ready();
    if (set_to("alloc_code")) return (CUresult)set_to("alloc_code");
    void *memory = NULL;
    if (!len || posix_memalign(&memory, 65536, len)) return 2;
    memset(memory, 0xA5, len);
    uint64_t at = (uint64_t)(uintptr_t)memory | (set_to("tagged") ? TAG : 0);
    pthread_mutex_lock(&lock);
    int full = add(device, at, len);
    pthread_mutex_unlock(&lock);
    if (full) { free(memory); return 2; }
    count(ALLOCATIONS, 1);
    *out = at;
    return 0;
}
PUBLIC CUresult cuMemFree_v2(uint64_t at) {
    if (ready()) return ready();
    pthread_mutex_lock(&lock);
    struct stretch *s = starting(device, at);
    if (s) {
        if (starting(registered, at)) counts[VIOLATIONS]++;
        violation_if_pending(s->at, s->len);
        s->at = 0;
        free(real(at));
    }
    pthread_mutex_unlock(&lock);
    if (!s) return 1;
    count(ALLOCATIONS, -1);
    return 0;
}
PUBLIC CUresult cuMemHostRegister_v2(void *memory, size_t len, unsigned flags) {
    (void)flags;
    if (ready()) return ready();
    if (set_to("pin_code")) return (CUresult)set_to("pin_code");
    pthread_mutex_lock(&lock);
    int full = add(host, (uint64_t)(uintptr_t)memory, len);
    pthread_mutex_unlock(&lock);
    if (full) return 2;
    count(PINNED, 1);
    return 0;
}
PUBLIC CUresult cuMemHostUnregister(void *memory) {
    if (ready()) return ready();
    pthread_mutex_lock(&lock);
    struct stretch *s = starting(host, (uint64_t)(uintptr_t)memory);
    if (s) violation_if_pending(s->at, s->len), s->at = 0;
    pthread_mutex_unlock(&lock);
    if (!s) return 713;
    count(PINNED, -1);
    return 0;
}
static CUresult copy_fails(uint64_t at, size_t len) {
    if (ready()) return ready();
    if (set_to("copy_code")) return (CUresult)set_to("copy_code");
    return find(device, at, len) ? 0 : 1;
}
PUBLIC CUresult cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t len) {
    pthread_mutex_lock(&lock);
    CUresult result = copy_fails(to, len);
    if (!result) memcpy(real(to), from, len), counts[SYNC_COPIES]++;
    pthread_mutex_unlock(&lock);
    return result;
}
PUBLIC CUresult cuMemcpyDtoH_v2(void *to, uint64_t from, size_t len) {
    pthread_mutex_lock(&lock);
    CUresult result = copy_fails(from, len);
    if (!result) memcpy(to, real(from), len), counts[SYNC_COPIES]++;
    pthread_mutex_unlock(&lock);
    return result;
}
PUBLIC CUresult cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t len, void *stream) {
    pthread_mutex_lock(&lock);
    CUresult result = copy_fails(to, len);
    if (!result) {
        counts[ASYNC_COPIES]++;
        if (!find(host, (uint64_t)(uintptr_t)from, len)) counts[UNPINNED_COPIES]++;
        result = enqueue((struct work){stream, NULL, real(to), from, len});
    }
    pthread_mutex_unlock(&lock);
    return result;
}
PUBLIC CUresult cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t len, void *stream) {
    pthread_mutex_lock(&lock);
    CUresult result = copy_fails(to, len);
    if (!result) result = copy_fails(from, len);
    if (!result) counts[ASYNC_COPIES]++, result = enqueue((struct work){stream, NULL, real(to), real(from), len});
    pthread_mutex_unlock(&lock);
    return result;
}
struct copy2d {
    size_t from_x, from_y; int from_kind; const void *from_host; uint64_t from_device; void *from_array; size_t from_pitch;
    size_t to_x, to_y; int to_kind; void *to_host; uint64_t to_device; void *to_array; size_t to_pitch;
    size_t width, height;
};
PUBLIC CUresult cuMemcpy2DAsync_v2(const struct copy2d *c, void *stream) {
    if (c->from_kind != 2 || c->to_kind != 2 || c->width > c->from_pitch || c->width > c->to_pitch) return 1;
    for (size_t y = 0; y < c->height; y++) {
        uint64_t to = c->to_device + (c->to_y + y) * c->to_pitch + c->to_x;
        uint64_t from = c->from_device + (c->from_y + y) * c->from_pitch + c->from_x;
        CUresult result = cuMemcpyDtoDAsync_v2(to, from, c->width, stream);
        if (result) return result;
    }
    return 0;
}
PUBLIC CUresult cuStreamCreate(void **stream, unsigned flags) {
    (void)flags;
    if (ready()) return ready();
    if (!(*stream = malloc(1))) return 2;
    count(STREAMS, 1);
    return 0;
}
PUBLIC CUresult cuStreamSynchronize(void *stream) {
    pthread_mutex_lock(&lock);
    do_work(stream, NULL);
    pthread_mutex_unlock(&lock);
    return ready();
}
PUBLIC CUresult cuStreamDestroy_v2(void *stream) {
    pthread_mutex_lock(&lock);
    do_work(stream, NULL);
    pthread_mutex_unlock(&lock);
    free(stream);
    count(STREAMS, -1);
    return 0;
}
PUBLIC CUresult cuEventCreate(void **event, unsigned flags) {
    (void)flags;
    if (ready()) return ready();
    if (!(*event = calloc(1, sizeof(struct event)))) return 2;
    ((struct event *)*event)->done = 1;
    count(EVENTS, 1);
    return 0;
}
PUBLIC CUresult cuEventRecord(void *event, void *stream) {
    pthread_mutex_lock(&lock);
    ((struct event *)event)->done = 0;
    CUresult result = enqueue((struct work){stream, event, NULL, NULL, 0});
    pthread_mutex_unlock(&lock);
    return result;
}
PUBLIC CUresult cuEventSynchronize(void *event) {
    pthread_mutex_lock(&lock);
    struct event *e = event;
    for (size_t i = 0; i < queued && !e->done; i++)
        if (queue[i].event == e) { do_work(queue[i].stream, e); break; }
    pthread_mutex_unlock(&lock);
    return ready();
}
PUBLIC CUresult cuEventDestroy_v2(void *event) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < queued; i++)
        if (queue[i].event == event) counts[VIOLATIONS]++;
    pthread_mutex_unlock(&lock);
    free(event);
    count(EVENTS, -1);
    return 0;
}
PUBLIC CUresult cuGetErrorName(CUresult code, const char **name) {
    switch (code) {
    case 1: *name = "CUDA_ERROR_INVALID_VALUE"; return 0;
    case 2: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return 0;
    case 100: *name = "CUDA_ERROR_NO_DEVICE"; return 0;
    case 101: *name = "CUDA_ERROR_INVALID_DEVICE"; return 0;
    case 201: *name = "CUDA_ERROR_INVALID_CONTEXT"; return 0;
    case 700: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; return 0;
    default: *name = NULL; return 1;
    }
}

/* --- cuFile --- */
typedef struct { int code, cuda; } CUfileError_t;
struct descriptor { int kind; union { int fd; void *handle; } u; const void *operations; };
struct handle { int fd; };
struct per_gpu {
    char uuid[16];
    uint64_t read_bytes, read_bandwidth, read_utilization, read_us, total, p2p, nvfs, posix, unaligned, rest[20];
};
_Static_assert(sizeof(struct per_gpu) == 31 * 8, "31 words a GPU");
static struct { uint64_t before[128]; uint32_t gpus; struct per_gpu gpu[16]; } stats = {.gpus = 1};
static int stats_level, stats_on, forced_compat;

static CUfileError_t file_error(int64_t code) { return (CUfileError_t){(int)code, 0}; }

PUBLIC CUfileError_t cuFileDriverOpen(void) {
    if (!set_to("open_code")) count(DRIVERS, 1);
    return file_error(set_to("open_code"));
}
PUBLIC CUfileError_t cuFileDriverClose(void) {
    pthread_mutex_lock(&lock);
    /* Opens are counted; the last close takes everything with it. */
    if (counts[DRIVERS] == 1 && (counts[HANDLES] || counts[BUFFERS])) counts[VIOLATIONS]++;
    pthread_mutex_unlock(&lock);
    count(DRIVERS, -1);
    return file_error(0);
}
PUBLIC CUfileError_t cuFileSetParameterBool(int parameter, bool value) {
    if (counts[DRIVERS]) return file_error(5026);
    if (parameter == 2) forced_compat = value, counts[FORCED_COMPAT] = value;
    return file_error(parameter >= 0 && parameter < 12 ? 0 : 5022);
}
PUBLIC CUfileError_t cuFileHandleRegister(void **out, struct descriptor *d) {
    if (set_to("register_code")) return file_error(set_to("register_code"));
    if (!counts[DRIVERS]) return file_error(5001);
    if (d->kind != 1) return file_error(5022);
    struct handle *h = malloc(sizeof *h);
    if (!h) return file_error(5043);
    h->fd = d->u.fd;
    *out = h;
    count(HANDLES, 1);
    return file_error(0);
}
PUBLIC void cuFileHandleDeregister(void *handle) { free(handle); count(HANDLES, -1); }
PUBLIC CUfileError_t cuFileBufRegister(const void *at, size_t len, int flags) {
    (void)flags;
    if (set_to("buffer_code")) return file_error(set_to("buffer_code"));
    pthread_mutex_lock(&lock);
    int64_t code = !find(device, (uint64_t)(uintptr_t)at, len) ? 5012 : starting(registered, (uint64_t)(uintptr_t)at) ? 5023
        : add(registered, (uint64_t)(uintptr_t)at, len) ? 5043 : 0;
    pthread_mutex_unlock(&lock);
    if (!code) count(BUFFERS, 1);
    return file_error(code);
}
PUBLIC CUfileError_t cuFileBufDeregister(const void *at) {
    pthread_mutex_lock(&lock);
    struct stretch *s = starting(registered, (uint64_t)(uintptr_t)at);
    if (s) s->at = 0;
    pthread_mutex_unlock(&lock);
    if (s) count(BUFFERS, -1);
    return file_error(s ? 0 : 5024);
}
/* Reads through aligned memory, because the file may be open with O_DIRECT. */
static ssize_t read_aligned(int fd, uint8_t *to, size_t len, off_t offset) {
    off_t from = offset & ~(off_t)4095;
    size_t head = (size_t)(offset - from), whole = (head + len + 4095) & ~(size_t)4095;
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, whole)) return errno = ENOMEM, -1;
    ssize_t came = pread(fd, memory, whole, from);
    if (came > 0) {
        size_t here = (size_t)came > head ? (size_t)came - head : 0;
        came = (ssize_t)(here < len ? here : len);
        memcpy(to, (uint8_t *)memory + head, (size_t)came);
    }
    int error = errno;
    free(memory);
    errno = error;
    return came;
}
PUBLIC ssize_t cuFileRead(void *handle, void *base, size_t len, off_t offset, off_t into) {
    if (set_to("delay_us")) usleep((useconds_t)set_to("delay_us"));
    if (set_to("read_errno")) return errno = (int)set_to("read_errno"), -1;
    if (set_to("read_code")) return -set_to("read_code");
    if (ready()) return -5047;
    if (set_to("short") && len > (size_t)set_to("short")) len = (size_t)set_to("short");
    uint64_t at = (uint64_t)(uintptr_t)base + (uint64_t)into;
    pthread_mutex_lock(&lock);
    struct stretch *s = find(device, at, len);
    pthread_mutex_unlock(&lock);
    if (!s) return -5014;
    bool unaligned = (offset | (off_t)at | (off_t)len) & 4095;
    ssize_t came = read_aligned(((struct handle *)handle)->fd, real(at), len, offset);
    if (came < 0) return -1;
    pthread_mutex_lock(&lock);
    if (set_to("flip")) {
        standin_set("flip", set_to("flip") - 1);
        for (ssize_t i = 0; i < came; i++) real(at)[i] ^= 1;
    }
    counts[READS]++;
    counts[UNALIGNED_READS] += unaligned;
    if (stats_on && stats_level >= 3) {
        struct per_gpu *gpu = &stats.gpu[0];
        gpu->read_bytes += (uint64_t)came;
        gpu->total++;
        gpu->unaligned += unaligned;
        int64_t way = forced_compat ? WAY_POSIX : set_to("way");
        *(way == WAY_P2P ? &gpu->p2p : way == WAY_NVFS ? &gpu->nvfs : &gpu->posix) += 1;
    }
    pthread_mutex_unlock(&lock);
    return came;
}
PUBLIC CUfileError_t cuFileSetStatsLevel(int level) { stats_level = level; return file_error(0); }
PUBLIC CUfileError_t cuFileStatsStart(void) { stats_on = 1; return file_error(0); }
PUBLIC CUfileError_t cuFileGetStatsL3(void *out) {
    if (set_to("stats_code")) return file_error(set_to("stats_code"));
    pthread_mutex_lock(&lock);
    memcpy(out, &stats, sizeof stats);
    pthread_mutex_unlock(&lock);
    return file_error(0);
}

/* --- NVML --- */
PUBLIC int nvmlInit_v2(void) {
    if (!set_to("devices")) return 9;
    count(NVML_OPEN, 1);
    return 0;
}
PUBLIC int nvmlShutdown(void) { count(NVML_OPEN, -1); return 0; }
PUBLIC const char *nvmlErrorString(int code) { return code == 3 ? "Not Supported" : code == 9 ? "Driver Not Loaded" : "Error"; }
PUBLIC int nvmlSystemGetDriverVersion(char *text, unsigned len) { snprintf(text, len, "stand-in"); return 0; }
PUBLIC int nvmlDeviceGetCount_v2(unsigned *n) { *n = (unsigned)set_to("devices"); return 0; }
PUBLIC int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    if (index >= (unsigned)set_to("devices")) return 2;
    *out = (void *)(uintptr_t)(index + 1);
    return 0;
}
PUBLIC int nvmlDeviceGetName(void *d, char *text, unsigned len) {
    snprintf(text, len, "Tierlab stand-in (no GPU) %d", (int)(uintptr_t)d - 1);
    return 0;
}
PUBLIC int nvmlDeviceGetUUID(void *d, char *text, unsigned len) { snprintf(text, len, "GPU-stand-in-%d", (int)(uintptr_t)d - 1); return 0; }
PUBLIC int nvmlDeviceGetUtilizationRates(void *d, unsigned *rates) {
    (void)d;
    rates[0] = (unsigned)set_to("utilization"), rates[1] = rates[0] / 2;
    return 0;
}
PUBLIC int nvmlDeviceGetMemoryInfo(void *d, uint64_t *info) {
    (void)d;
    info[0] = UINT64_C(80) << 30, info[2] = UINT64_C(3) << 30, info[1] = info[0] - info[2];
    return 0;
}
PUBLIC int nvmlDeviceGetClockInfo(void *d, int kind, unsigned *mhz) { (void)d; *mhz = kind == 2 ? 2619 : 1980; return 0; }
PUBLIC int nvmlDeviceGetPowerUsage(void *d, unsigned *mw) { (void)d; *mw = (unsigned)set_to("power_mw"); return 0; }
PUBLIC int nvmlDeviceGetTotalEnergyConsumption(void *d, uint64_t *mj) {
    (void)d;
    if (set_to("no_energy")) return 3;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *mj = (uint64_t)((double)set_to("power_mw") * ((double)now.tv_sec + (double)now.tv_nsec / 1e9));
    return 0;
}
PUBLIC int nvmlDeviceGetPcieThroughput(void *d, int counter, unsigned *kb) { (void)d; *kb = counter ? 7000 : 3000; return 0; }
PUBLIC int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *celsius) { (void)d, (void)sensor; *celsius = 41; return 0; }
