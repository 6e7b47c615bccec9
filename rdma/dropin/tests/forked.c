// A program of C that forks while another thread makes and destroys objects, without an RNIC.
// That thread may have had a lock of the library: then each call of the child ends in ENODEV,
// and none waits for the lock. Without such a thread a child works.
#define _GNU_SOURCE
#include "pair.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 100, WORKS = 0, IS_DEAD = 1, FAILS = 2 };

static int is_over;

static void *churn(void *ignored)
{
    (void)ignored;
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        struct rdma_event_channel *channel = rdma_create_event_channel();
        struct rdma_cm_id *id;

        MUST(channel && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
        MUST(rdma_destroy_id(id) == 0);
        rdma_destroy_event_channel(channel);
    }
    return NULL;
}

// What becomes of the library in a child.
static int use(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;

    if (!list)
        return errno == ENODEV && !rdma_create_event_channel() && errno == ENODEV ? IS_DEAD : FAILS;
    channel = rdma_create_event_channel();
    if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) || rdma_destroy_id(id))
        return FAILS;
    struct ibv_context *context = ibv_open_device(list[0]);
    return context && ibv_alloc_pd(context) ? WORKS : FAILS;
}

static int child(void)
{
    int status;
    pid_t number = fork();

    MUST(number >= 0);
    if (number == 0) {
        // A child that waits for a lock is ended.
        alarm(10);
        _exit(use());
    }
    MUST(waitpid(number, &status, 0) == number && WIFEXITED(status));
    return WEXITSTATUS(status);
}

int main(void)
{
    pthread_t thread;
    int dead = 0;

    MUST(child() == WORKS);
    MUST(pthread_create(&thread, NULL, churn, NULL) == 0);
    for (int number = 0; number < CHILDREN; number++) {
        int became = child();

        MUST(became == WORKS || became == IS_DEAD);
        dead += became == IS_DEAD;
    }
    MUST(dead > 0);
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    MUST(pthread_join(thread, NULL) == 0 && child() == WORKS);
    return 0;
}
