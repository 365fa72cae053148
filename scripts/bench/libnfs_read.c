/* The peer of the NFS benchmark: libnfs's asynchronous client, reading one file over one connection in a closed loop.
 *
 * In: server, export, file, pattern (random or sequential), block bytes, depth, warm-up and window in seconds.
 * Out: one line of JSON. The data is read in libnfs's buffer without a copy, which favours libnfs.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include <nfsc/libnfs.h> /* wants struct timeval */

#define MAX_SAMPLES (16u << 20)

struct course {
    struct nfs_context *nfs;
    struct nfsfh *file;
    uint64_t blocks, block_bytes, next, random;
    int sequential;
    double measure_from, until;
    uint64_t under_way, calls;
    uint32_t *samples_ns;
    unsigned checksum;
};

struct slot {
    struct course *course;
    double begun;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const char *what, struct nfs_context *nfs) {
    fprintf(stderr, "libnfs_read: %s: %s\n", what, nfs ? nfs_get_error(nfs) : strerror(errno));
    exit(1);
}

/* SplitMix64 (Steele, Lea and Flood, 2014). */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void begin(struct slot *slot);

static void ended(int count, struct nfs_context *nfs, void *data, void *private_data) {
    struct slot *slot = private_data;
    struct course *course = slot->course;
    double end = now();
    course->under_way--;
    if (count < 0) {
        fprintf(stderr, "libnfs_read: a read failed: %s\n", (char *)data);
        exit(1);
    }
    if ((uint64_t)count != course->block_bytes) fail("a read is short", nfs);
    course->checksum += ((unsigned char *)data)[0];
    if (end >= course->until) return;
    if (end >= course->measure_from) {
        if (course->calls < MAX_SAMPLES) course->samples_ns[course->calls] = (uint32_t)((end - slot->begun) * 1e9);
        course->calls++;
    }
    begin(slot);
}

static void begin(struct slot *slot) {
    struct course *course = slot->course;
    uint64_t block = course->sequential ? course->next++ : next_random(&course->random);
    slot->begun = now();
    course->under_way++;
    if (nfs_pread_async(course->nfs, course->file, block % course->blocks * course->block_bytes, course->block_bytes,
                        ended, slot) != 0)
        fail("cannot send a read", course->nfs);
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
    if (argc != 9) {
        fprintf(stderr, "usage: libnfs_read SERVER EXPORT FILE random|sequential BLOCK DEPTH WARMUP_S WINDOW_S\n");
        return 2;
    }
    struct course course = {.sequential = strcmp(argv[4], "sequential") == 0, .random = 1};
    course.block_bytes = strtoull(argv[5], NULL, 10);
    unsigned depth = (unsigned)strtoul(argv[6], NULL, 10);
    course.nfs = nfs_init_context();
    if (!course.nfs || nfs_set_version(course.nfs, 3) != 0) fail("cannot start libnfs", course.nfs);
    if (nfs_mount(course.nfs, argv[1], argv[2]) != 0) fail("cannot mount", course.nfs);
    if (nfs_open(course.nfs, argv[3], O_RDONLY, &course.file) != 0) fail("cannot open the file", course.nfs);
    struct nfs_stat_64 stat;
    if (nfs_fstat64(course.nfs, course.file, &stat) != 0) fail("cannot stat the file", course.nfs);
    if (course.block_bytes == 0 || depth == 0 || stat.nfs_size < course.block_bytes) fail("nothing to read", course.nfs);
    course.blocks = stat.nfs_size / course.block_bytes;
    course.samples_ns = malloc(MAX_SAMPLES * sizeof *course.samples_ns);
    struct slot *slots = calloc(depth, sizeof *slots);
    if (!course.samples_ns || !slots) fail("no memory", NULL);

    double begun = now();
    course.measure_from = begun + atof(argv[7]);
    course.until = course.measure_from + atof(argv[8]);
    for (unsigned i = 0; i < depth; i++) {
        slots[i].course = &course;
        begin(&slots[i]);
    }
    while (course.under_way > 0) {
        struct pollfd wait = {.fd = nfs_get_fd(course.nfs), .events = (short)nfs_which_events(course.nfs)};
        if (poll(&wait, 1, 100) < 0 && errno != EINTR) fail("poll", NULL);
        if (nfs_service(course.nfs, wait.revents) < 0) fail("the connection failed", course.nfs);
    }
    double window = course.until - course.measure_from;
    uint64_t samples = course.calls < MAX_SAMPLES ? course.calls : MAX_SAMPLES;
    if (samples == 0) fail("no read ended inside the window", NULL);
    qsort(course.samples_ns, samples, sizeof *course.samples_ns, ascending);
    printf("{\"calls\":%" PRIu64 ",\"iops\":%.1f,\"mb_per_s\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"read_max\":%" PRIu64 "}\n",
           course.calls, (double)course.calls / window,
           (double)course.calls * (double)course.block_bytes / 1e6 / window, course.samples_ns[samples / 2] / 1e3,
           course.samples_ns[samples - 1 - samples / 100] / 1e3, nfs_get_readmax(course.nfs));
    return 0;
}
