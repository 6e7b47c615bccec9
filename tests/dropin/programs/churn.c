/* churn serve CONNECTIONS
 * churn connect ADDRESS CONNECTIONS: connections one after another, each with its own identifier
 * and queue pair. Every second one is closed, the rest are reset. Nothing else ends one: the
 * server accepts each, and none may get an event of another one. */
#include "check.h"
#include <poll.h>
#include <time.h>

enum { PORT = 7471 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void serve(long connections) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_storage local = address_of("0.0.0.0", PORT);
    struct rdma_cm_event *event;
    struct rdma_cm_id *listener;
    CHECK(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&local) == 0);
    CHECK(rdma_listen(listener, 0) == 0);
    for (long ended = 0; ended < connections;) {
        CHECK(rdma_get_cm_event(channel, &event) == 0);
        enum rdma_cm_event_type kind = event->event;
        struct rdma_cm_id *id = event->id;
        CHECK(rdma_ack_cm_event(event) == 0);
        if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
            struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
            add_queue_pair(id);
            CHECK(rdma_accept(id, &param) == 0);
        } else if (kind == RDMA_CM_EVENT_DISCONNECTED) {
            destroy(id);
            ended++;
        } else {
            CHECK(kind == RDMA_CM_EVENT_ESTABLISHED);
        }
    }
    CHECK(rdma_destroy_id(listener) == 0);
    rdma_destroy_event_channel(channel);
    printf("%ld connections have ended\n", connections);
}

/* Whether the channel has an event now. */
static int has_event(struct rdma_event_channel *channel) {
    struct pollfd descriptor = {.fd = channel->fd, .events = POLLIN};
    return poll(&descriptor, 1, 0) == 1;
}

static void connect_to(const char *address, long connections) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    double began = now();
    for (long at = 0; at < connections; at++) {
        struct rdma_cm_id *id = begin_to_connect(channel, address, PORT);
        pass(channel, RDMA_CM_EVENT_ESTABLISHED, id);
        if (has_event(channel))
            expect(channel, RDMA_CM_EVENT_ESTABLISHED, NULL);
        if (at % 2 == 0)
            CHECK(rdma_disconnect(id) == 0);
        destroy(id);
        CHECK(!has_event(channel));
    }
    double took = now() - began;
    rdma_destroy_event_channel(channel);
    printf("%ld connections, none refused, none got an event of another: %.0f a second\n", connections, connections / took);
}

int main(int argc, char **argv) {
    CHECK(argc >= 3);
    if (strcmp(argv[1], "serve") == 0)
        serve(atol(argv[2]));
    else
        connect_to(argv[2], atol(argv[argc - 1]));
    return 0;
}
