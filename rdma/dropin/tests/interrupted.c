// A program of C that gets a signal every millisecond, whose handler restarts no system call, as
// profilers have it. It opens, connects and closes all the same.
#include "pair.h"
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

enum { PORT = 7471, ROUNDS = 5, MICROSECONDS = 1000, MOST = 60000 };

static volatile sig_atomic_t signals;

// Ends the program if it waits for ever. alarm() cannot, as ITIMER_REAL is its timer.
static void count(int ignored)
{
    (void)ignored;
    if (++signals > MOST)
        _exit(2);
}

int main(void)
{
    struct sigaction action = { .sa_handler = count };
    struct itimerval often = { .it_interval = { .tv_usec = MICROSECONDS }, .it_value = { .tv_usec = MICROSECONDS } };
    struct itimerval never = { .it_value = { 0 } };

    for (int round = 0; round < ROUNDS; round++) {
        struct pair *pair = calloc(1, sizeof *pair);
        MUST(pair && sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_PROF, &often, NULL) == 0);
        MUST(sigaction(SIGPROF, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
        listen_at(pair, "10.99.0.1", PORT);
        connect_pair(pair, "10.99.0.1", PORT);
        write_and_wait(&pair->client, &pair->server, 100);
        end_pair(pair);
        MUST(setitimer(ITIMER_REAL, &never, NULL) == 0 && setitimer(ITIMER_PROF, &never, NULL) == 0);
        free(pair);
    }
    MUST(signals > ROUNDS);
    return 0;
}
