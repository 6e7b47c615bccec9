// A program of C that cancels threads which post and poll, in the middle of the engine's system
// calls. A thread ends where it asks whether it is cancelled, and not inside of the library.
#include "pair.h"
#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 7471, ROUNDS = 60 };

static struct pair pair;
static long inside;

static void *post(void *ignored)
{
    struct ibv_wc wc[8];

    for (;;) {
        inside++;
        post_write(&pair.client, &pair.server, 100);
        ibv_poll_cq(pair.client.cq, 8, wc);
        ibv_poll_cq(pair.server.cq, 8, wc);
        inside--;
        pthread_testcancel();
    }
    return ignored;
}

int main(void)
{
    alarm(60);
    listen_at(&pair, "10.99.0.1", PORT);
    connect_pair(&pair, "10.99.0.1", PORT);
    for (int round = 0; round < ROUNDS; round++) {
        struct timespec while_it_posts = { .tv_nsec = 3000000 };
        pthread_t thread;
        void *result;

        MUST(pthread_create(&thread, NULL, post, NULL) == 0);
        nanosleep(&while_it_posts, NULL);
        MUST(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        MUST(result == PTHREAD_CANCELED && inside == 0);
    }
    end_pair(&pair);
    return 0;
}
