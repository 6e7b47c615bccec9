/* Prints the frequency of this machine's time stamp counter in kHz: how far it and the clock go in
 * a tenth of a second. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

struct moment {
    unsigned long long tsc;
    long long ns;
};

static long long clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Both at once: of some attempts, the one that took the shortest. */
static struct moment now(void)
{
    struct moment best = {0, 0};
    long long shortest = -1;
    for (int i = 0; i < 100; i++) {
        long long before = clock_ns();
        unsigned long long tsc = __rdtsc();
        long long after = clock_ns();
        if (shortest < 0 || after - before < shortest) {
            shortest = after - before;
            best.tsc = tsc;
            best.ns = (before + after) / 2;
        }
    }
    return best;
}

int main(void)
{
    struct moment first = now();
    usleep(100000);
    struct moment last = now();
    printf("%llu\n", (last.tsc - first.tsc) * 1000000 / (last.ns - first.ns));
    return 0;
}
