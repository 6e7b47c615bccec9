/* late ADDRESS: a client connects before its server listens, in this process, and is served. Without a server it is rejected. */
#include "check.h"
#include <poll.h>

/* The server is so late, and a client that nobody hears has been told after so long. Milliseconds. */
enum { PORT = 7471, LATE = 50, TOLD = 5000 };

/* Whether a channel has an event within so many milliseconds. */
static int has_event(struct rdma_event_channel *channel, int within) {
    struct pollfd descriptor = {.fd = channel->fd, .events = POLLIN};
    int ready = poll(&descriptor, 1, within);
    CHECK(ready >= 0);
    return ready;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    struct rdma_event_channel *of_server = rdma_create_event_channel(), *of_client = rdma_create_event_channel();
    struct sockaddr_storage local = address_of(argv[1], PORT);
    struct rdma_cm_id *listener, *peer, *client = begin_to_connect(of_client, argv[1], PORT);
    CHECK(!has_event(of_client, LATE));
    CHECK(rdma_create_id(of_server, &listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&local) == 0);
    CHECK(rdma_listen(listener, 0) == 0);
    peer = take_next(of_server, listener);
    accept_peer(of_server, peer);
    pass(of_client, RDMA_CM_EVENT_ESTABLISHED, client);
    destroy(client);
    destroy(peer);
    CHECK(rdma_destroy_id(listener) == 0);

    client = begin_to_connect(of_client, argv[1], PORT);
    CHECK(has_event(of_client, TOLD));
    struct rdma_cm_event *event = expect(of_client, RDMA_CM_EVENT_REJECTED, client);
    CHECK(event->status == -ECONNREFUSED);
    CHECK(rdma_ack_cm_event(event) == 0);
    destroy(client);

    /* Who is destroyed while the attempt is made again is told nothing more. */
    client = begin_to_connect(of_client, argv[1], PORT);
    destroy(client);
    CHECK(!has_event(of_client, 2 * LATE));
    rdma_destroy_event_channel(of_server);
    rdma_destroy_event_channel(of_client);
    printf("heard though it was early\n");
    return 0;
}
