/* The least that takes frames from AF_XDP rings, or sends them back: what tools/bench --link --queues holds xwarp's driver against.
 * libxdp's rings and its own XDP program, one socket on queue 0; no counters, no checks beyond what keeps the rings right.
 *
 *   minimal DEV copy|zero-copy receive|forward PAUSE    PAUSE: microseconds of sleep after a turn without frames
 *
 * Prints the frames of a second, and all, when none has come for 300 ms. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <xdp/xsk.h>

enum { FRAMES = 4096, BYTES = 2048, BATCH = 64, RING = 2048 };

static char *area;
static struct xsk_ring_prod fill, tx;
static struct xsk_ring_cons done, rx;
static struct xsk_socket *xsk;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void give_back(const __u64 *addresses, unsigned count)
{
    __u32 at;
    if (xsk_ring_prod__reserve(&fill, count, &at) != count)
        fail("the fill ring is full");
    for (unsigned i = 0; i < count; i++)
        *xsk_ring_prod__fill_addr(&fill, at + i) = addresses[i];
    xsk_ring_prod__submit(&fill, count);
}

static void reclaim(void)
{
    __u64 addresses[BATCH];
    __u32 at, count = xsk_ring_cons__peek(&done, BATCH, &at);
    if (count == 0)
        return;
    for (unsigned i = 0; i < count; i++)
        addresses[i] = *xsk_ring_cons__comp_addr(&done, at + i);
    xsk_ring_cons__release(&done, count);
    give_back(addresses, count);
}

static void flush(void)
{
    sendto(xsk_socket__fd(xsk), NULL, 0, MSG_DONTWAIT, NULL, 0);
    reclaim();
}

static void swap_macs(char *frame)
{
    char mac[6];
    memcpy(mac, frame, 6);
    memcpy(frame, frame + 6, 6);
    memcpy(frame + 6, mac, 6);
}

static void send_back(__u32 from, unsigned count)
{
    __u32 at;
    while (xsk_ring_prod__reserve(&tx, count, &at) != count)
        flush();
    for (unsigned i = 0; i < count; i++) {
        const struct xdp_desc *frame = xsk_ring_cons__rx_desc(&rx, from + i);
        swap_macs(area + frame->addr);
        *xsk_ring_prod__tx_desc(&tx, at + i) = *frame;
    }
    xsk_ring_prod__submit(&tx, count);
    flush();
}

static void recycle(__u32 from, unsigned count)
{
    __u64 addresses[BATCH];
    for (unsigned i = 0; i < count; i++)
        addresses[i] = xsk_ring_cons__rx_desc(&rx, from + i)->addr;
    give_back(addresses, count);
}

/* callgrind counts what this function takes. */
__attribute__((noinline)) unsigned turn(int forward)
{
    __u32 at;
    unsigned count = xsk_ring_cons__peek(&rx, BATCH, &at);
    if (count == 0)
        return 0;
    if (forward)
        send_back(at, count);
    else
        recycle(at, count);
    xsk_ring_cons__release(&rx, count);
    return count;
}

static void open_socket(const char *dev, int zero_copy)
{
    struct xsk_umem *umem;
    struct xsk_umem_config of_umem = { .fill_size = 2 * FRAMES, .comp_size = RING, .frame_size = BYTES };
    struct xsk_socket_config of_socket = { .rx_size = RING, .tx_size = RING, .bind_flags = zero_copy ? XDP_ZEROCOPY : XDP_COPY };
    area = mmap(NULL, (size_t)FRAMES * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED || xsk_umem__create(&umem, area, (__u64)FRAMES * BYTES, &fill, &done, &of_umem))
        fail("no UMEM");
    /* Before the driver begins in zero copy: it may look into an empty ring only once. */
    for (unsigned frame = 0; frame < FRAMES; frame++) {
        __u64 address = (__u64)frame * BYTES;
        give_back(&address, 1);
    }
    if (xsk_socket__create(&xsk, dev, 0, umem, &rx, &tx, &of_socket))
        fail("no AF_XDP socket");
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return fprintf(stderr, "usage: minimal DEV copy|zero-copy receive|forward PAUSE\n"), 2;
    int forward = strcmp(argv[3], "forward") == 0, pause = atoi(argv[4]);
    open_socket(argv[1], strcmp(argv[2], "zero-copy") == 0);
    puts("ready");
    fflush(stdout);
    double start = now(), first = 0, last = 0;
    unsigned long frames = 0;
    for (;;) {
        unsigned count = turn(forward);
        if (count > 0) {
            last = now();
            if (frames == 0)
                first = last;
            frames += count;
        } else if (now() - (frames ? last : start) > (frames ? 0.3 : 60)) {
            break;
        } else if (pause) {
            usleep(pause);
        }
    }
    printf("%.0f %lu\n", frames / (last - first), frames);
    xsk_socket__delete(xsk);
    return frames == 0;
}
