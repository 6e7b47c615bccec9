/* backlog ADDRESS: more clients than rdma_listen's backlog, all in this process, before the server takes any event. As many as the
 * backlog are accepted, the others are rejected. A backlog of 0 has room for all of them. */
#include "check.h"

enum { PORT = 7471, CLIENTS = 5 };

static void run(const char *address, int backlog, int accepted) {
    struct rdma_event_channel *of_server = rdma_create_event_channel();
    struct rdma_event_channel *of_clients[CLIENTS];
    struct sockaddr_storage local = address_of(address, PORT);
    struct rdma_cm_id *listener, *clients[CLIENTS], *peers[CLIENTS];
    CHECK(rdma_create_id(of_server, &listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&local) == 0);
    CHECK(rdma_listen(listener, backlog) == 0);
    for (int i = 0; i < CLIENTS; i++) {
        of_clients[i] = rdma_create_event_channel();
        clients[i] = begin_to_connect(of_clients[i], address, PORT);
        /* One that is rejected has been told when the next one begins, so the first ones are those that wait. */
        if (i >= accepted) {
            struct rdma_cm_event *event = expect(of_clients[i], RDMA_CM_EVENT_REJECTED, clients[i]);
            CHECK(event->status == -ECONNREFUSED);
            CHECK(rdma_ack_cm_event(event) == 0);
        }
    }
    for (int i = 0; i < accepted; i++)
        peers[i] = take_next(of_server, listener);
    for (int i = 0; i < accepted; i++)
        accept_peer(of_server, peers[i]);
    for (int i = 0; i < accepted; i++)
        pass(of_clients[i], RDMA_CM_EVENT_ESTABLISHED, clients[i]);
    /* The places are free again. */
    struct rdma_cm_id *late = begin_to_connect(of_clients[0], address, PORT);
    struct rdma_cm_id *its_peer = take_next(of_server, listener);
    accept_peer(of_server, its_peer);
    pass(of_clients[0], RDMA_CM_EVENT_ESTABLISHED, late);
    destroy(late);
    destroy(its_peer);
    for (int i = 0; i < CLIENTS; i++)
        destroy(clients[i]);
    for (int i = 0; i < accepted; i++)
        destroy(peers[i]);
    CHECK(rdma_destroy_id(listener) == 0);
    rdma_destroy_event_channel(of_server);
    for (int i = 0; i < CLIENTS; i++)
        rdma_destroy_event_channel(of_clients[i]);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    run(argv[1], 2, 2);
    run(argv[1], 0, CLIENTS);
    printf("accepted and rejected as the backlog says\n");
    return 0;
}
