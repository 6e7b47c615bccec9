// A program of C whose threads are cancelled while they wait for events. Each ends, runs its
// cleanup handler, and keeps nothing: the channel can be destroyed at once, and no event is lost.
#define _GNU_SOURCE
#include "pair.h"
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { PORT = 7471, ROUNDS = 300 };

static const char *const own = "10.99.0.1";
static struct rdma_event_channel *channel;
static struct ibv_comp_channel *completions;
static struct ibv_context *context;
static struct rdma_cm_id *listener;
static int cleaned, taken;

static void clean(void *ignored)
{
    (void)ignored;
    cleaned++;
}

static void wait_for_cm(void)
{
    struct rdma_cm_event *event;

    MUST(rdma_get_cm_event(channel, &event) == 0);
    MUST(rdma_ack_cm_event(event) == 0);
    taken++;
}

static void wait_for_completions(void)
{
    struct ibv_cq *cq;
    void *ignored;

    ibv_get_cq_event(completions, &cq, &ignored);
}

static void wait_for_async(void)
{
    struct ibv_async_event event;

    ibv_get_async_event(context, &event);
}

static void wait_for_request(void)
{
    struct rdma_cm_id *id;

    rdma_get_request(listener, &id);
}

static void *run(void *wait)
{
    pthread_cleanup_push(clean, NULL);
    ((void (*)(void))wait)();
    pthread_cleanup_pop(0);
    return NULL;
}

// Whether the thread of that number sleeps in a system call.
static int sleeps(pid_t thread)
{
    char path[64], state;
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    file = fopen(path, "r");
    MUST(file && fscanf(file, "%*d %*s %c", &state) == 1);
    fclose(file);
    return state == 'S';
}

static pid_t number;

static void *run_and_tell(void *wait)
{
    __atomic_store_n(&number, gettid(), __ATOMIC_RELEASE);
    return run(wait);
}

// Cancels a thread that sleeps in a call.
static void cancel_sleeper(void (*wait)(void), const char *name)
{
    pthread_t thread;
    void *result;
    int before = cleaned;

    number = 0;
    MUST(pthread_create(&thread, NULL, run_and_tell, wait) == 0);
    while (!__atomic_load_n(&number, __ATOMIC_ACQUIRE) || !sleeps(number))
        usleep(1000);
    usleep(20000);
    MUST(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    if (result != PTHREAD_CANCELED || cleaned != before + 1) {
        fprintf(stderr, "%s: the thread was not cancelled\n", name);
        exit(1);
    }
}

// An event comes while its taker is cancelled. Either the taker has it, or it waits for the next
// one.
static void cancel_beside_an_event(void)
{
    struct sockaddr_in address = address_of(own, PORT + 1);
    struct rdma_cm_id *id;
    pthread_t thread;
    int before = taken;

    MUST(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    MUST(pthread_create(&thread, NULL, run, wait_for_cm) == 0);
    MUST(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000) == 0);
    MUST(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
    if (taken == before)
        pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    MUST(rdma_destroy_id(id) == 0);
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct sockaddr_in address = address_of(own, PORT);
    struct ibv_cq *cq;

    // Ends the program if a thread is never woken.
    alarm(60);
    MUST(list && (context = ibv_open_device(list[0])));
    MUST((channel = rdma_create_event_channel()) && (completions = ibv_create_comp_channel(context)));
    MUST((cq = ibv_create_cq(context, 8, NULL, completions, 0)) && ibv_req_notify_cq(cq, 0) == 0);
    MUST(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP) == 0);
    MUST(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0 && rdma_listen(listener, 1) == 0);
    cancel_sleeper(wait_for_cm, "rdma_get_cm_event");
    cancel_sleeper(wait_for_completions, "ibv_get_cq_event");
    cancel_sleeper(wait_for_async, "ibv_get_async_event");
    cancel_sleeper(wait_for_request, "rdma_get_request");
    for (int round = 0; round < ROUNDS; round++)
        cancel_beside_an_event();
    MUST(rdma_destroy_id(listener) == 0);
    MUST(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(completions) == 0);
    rdma_destroy_event_channel(channel);
    MUST(ibv_close_device(context) == 0);
    ibv_free_device_list(list);
    return 0;
}
