/* timewait ADDRESS: a connection between both ends of this process. For each, the end of the timewait state is reported once, some time
 * after the end of the connection. An identifier that is destroyed before gets no event. */
#include "check.h"
#include <poll.h>
#include <time.h>

enum { PORT = 7471 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Whether a channel has an event within this time. */
static int has_event(struct rdma_event_channel *channel, int milliseconds) {
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    return poll(&fd, 1, milliseconds);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    struct rdma_event_channel *at_server = rdma_create_event_channel(), *at_client = rdma_create_event_channel();
    struct sockaddr_storage address = address_of(argv[1], PORT);
    struct rdma_cm_id *listener;
    CHECK(rdma_create_id(at_server, &listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0 && rdma_listen(listener, 2) == 0);
    for (int waits = 1; waits >= 0; waits--) {
        struct rdma_cm_id *client = begin_to_connect(at_client, argv[1], PORT);
        struct rdma_cm_id *server = take_next(at_server, listener);
        accept_peer(at_server, server);
        pass(at_client, RDMA_CM_EVENT_ESTABLISHED, client);
        CHECK(rdma_disconnect(client) == 0);
        pass(at_client, RDMA_CM_EVENT_DISCONNECTED, client);
        double ended = now();
        pass(at_server, RDMA_CM_EVENT_DISCONNECTED, server);
        if (waits) {
            pass(at_client, RDMA_CM_EVENT_TIMEWAIT_EXIT, client);
            CHECK(now() - ended > 0.9);
            pass(at_server, RDMA_CM_EVENT_TIMEWAIT_EXIT, server);
        }
        destroy(client);
        destroy(server);
        CHECK(has_event(at_client, 1500 * !waits) == 0 && has_event(at_server, 0) == 0);
    }
    CHECK(rdma_destroy_id(listener) == 0);
    rdma_destroy_event_channel(at_client);
    rdma_destroy_event_channel(at_server);
    printf("every timewait state has ended\n");
    return 0;
}
