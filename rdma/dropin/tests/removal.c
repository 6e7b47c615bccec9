// A program of C on the installed headers: the interface is deleted under identifiers. Those that
// are bound to the device get an event, and calls that wait for a peer end. Prints what was wrong,
// and returns 1 then.
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

static struct rdma_event_channel *channel;

// An identifier of this context, with the device's address or with none.
static struct rdma_cm_id *bound(struct rdma_event_channel *with, const char *host, int port, void *context)
{
    struct sockaddr_in of = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct rdma_cm_id *id;

    inet_pton(AF_INET, host, &of.sin_addr);
    if (rdma_create_id(with, &id, context, RDMA_PS_TCP) || rdma_bind_addr(id, (struct sockaddr *)&of))
        return NULL;
    return id;
}

// Waits for an event, which says that the device of an identifier is gone; the identifier's
// context.
static void *removed(void)
{
    struct rdma_cm_event *event;
    void *context = NULL;

    if (rdma_get_cm_event(channel, &event))
        return NULL;
    if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL && event->status == 0)
        context = event->id->context;
    rdma_ack_cm_event(event);
    return context;
}

// Waits for a peer that never comes; the error number that ends it.
static void *accepts(void *listener)
{
    struct rdma_cm_id *peer;
    static int error;

    error = rdma_get_request(listener, &peer) ? errno : 0;
    return &error;
}

int main(void)
{
    int first, second;
    void *told, *other;
    pthread_t waiting;

    // Who waits in vain for an event is ended.
    alarm(30);
    channel = rdma_create_event_channel();
    struct rdma_cm_id *idle = bound(channel, "10.99.0.1", 0, &first), *listener = bound(channel, "10.99.0.1", 7471, &second);
    struct rdma_cm_id *any = bound(channel, "0.0.0.0", 7472, NULL), *unbound, *waits = bound(NULL, "10.99.0.1", 7473, NULL);
    struct pollfd more = { .fd = channel->fd, .events = POLLIN };
    CHECK(channel && idle && listener && any && waits && rdma_create_id(channel, &unbound, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_listen(listener, 1) == 0 && rdma_listen(any, 1) == 0 && rdma_listen(waits, 1) == 0);
    CHECK(pthread_create(&waiting, NULL, accepts, waits) == 0);
    CHECK(system("ip link del dropin0") == 0);
    told = removed();
    other = removed();
    CHECK((told == &first && other == &second) || (told == &second && other == &first));
    // A call of a synchronous identifier ends, and one that is bound to no device gets no event.
    CHECK(pthread_join(waiting, &told) == 0 && *(int *)told == ENODEV);
    CHECK(poll(&more, 1, 0) == 0);
    CHECK(rdma_destroy_id(idle) == 0 && rdma_destroy_id(listener) == 0 && rdma_destroy_id(any) == 0);
    CHECK(rdma_destroy_id(unbound) == 0 && rdma_destroy_id(waits) == 0);
    rdma_destroy_event_channel(channel);
    return 0;
}
