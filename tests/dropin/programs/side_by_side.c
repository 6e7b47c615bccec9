/* side_by_side listen: one listener for IPv4 and one for IPv6, at one port. Each gets its own client, and an address of the other family
 * does not come to it.
 * side_by_side connect ADDRESS: such a client, which ends the connection at once. */
#include "check.h"

enum { PORT = 7471 };

static struct rdma_cm_id *listen_at(struct rdma_event_channel *channel, const char *wildcard) {
    struct sockaddr_storage local = address_of(wildcard, PORT);
    struct rdma_cm_id *id;
    int alone = 1;
    CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    if (local.ss_family == AF_INET6)
        CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &alone, sizeof alone) == 0);
    CHECK(rdma_bind_addr(id, (struct sockaddr *)&local) == 0);
    CHECK(rdma_listen(id, 4) == 0);
    return id;
}

static void serve(struct rdma_event_channel *channel) {
    /* In either order of their making. */
    const char *orders[2][2] = {{"0.0.0.0", "::"}, {"::", "0.0.0.0"}};
    for (int round = 0; round < 2; round++) {
        struct rdma_cm_id *listeners[2];
        for (int i = 0; i < 2; i++)
            listeners[i] = listen_at(channel, orders[round][i]);
        printf("round %d\n", round);
        fflush(stdout);
        /* IPv4 first, as the clients come. */
        for (int i = 0; i < 2; i++) {
            struct rdma_cm_id *peer = take_next(channel, listeners[round == 0 ? i : 1 - i]);
            accept_peer(channel, peer);
            CHECK(rdma_get_local_addr(peer)->sa_family == (i == 0 ? AF_INET : AF_INET6));
            pass(channel, RDMA_CM_EVENT_DISCONNECTED, peer);
            destroy(peer);
        }
        for (int i = 0; i < 2; i++)
            CHECK(rdma_destroy_id(listeners[i]) == 0);
    }
}

int main(int argc, char **argv) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    CHECK(channel != NULL);
    if (argc == 2 && strcmp(argv[1], "listen") == 0) {
        serve(channel);
    } else {
        CHECK(argc == 3 && strcmp(argv[1], "connect") == 0);
        struct rdma_cm_id *id = begin_to_connect(channel, argv[2], PORT);
        pass(channel, RDMA_CM_EVENT_ESTABLISHED, id);
        CHECK(rdma_disconnect(id) == 0);
        pass(channel, RDMA_CM_EVENT_DISCONNECTED, id);
        destroy(id);
    }
    rdma_destroy_event_channel(channel);
    printf("as it should be\n");
    return 0;
}
