// A program of C that calls exit in the handler of a signal, as many do for Ctrl-C, while the
// thread that takes the signal is in the middle of the library. It ends all the same, and leaves
// nothing attached.
#define _GNU_SOURCE
#include "pair.h"
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

enum { PORT = 7471, RUNS_FOR = 50000 };

static struct pair pair;

// What the destructor of an object in C++ does, after the library has ended. No call waits for the
// one that was interrupted.
static void destroy_late(void)
{
    rdma_destroy_qp(pair.client.id);
    ibv_destroy_cq(pair.client.cq);
    rdma_destroy_id(pair.client.id);
}

static void leave(int signal)
{
    (void)signal;
    exit(0);
}

int main(void)
{
    struct itimerval time = { .it_value = { .tv_usec = RUNS_FOR } };
    struct ibv_wc wc;

    // A program that hangs is ended.
    alarm(20);
    MUST(atexit(destroy_late) == 0);
    listen_at(&pair, "10.99.0.1", PORT);
    connect_pair(&pair, "10.99.0.1", PORT);
    MUST(signal(SIGPROF, leave) != SIG_ERR && setitimer(ITIMER_PROF, &time, NULL) == 0);
    for (;;) {
        post_write(&pair.client, &pair.server, 100);
        ibv_poll_cq(pair.client.cq, 1, &wc);
        ibv_poll_cq(pair.server.cq, 1, &wc);
    }
}
