/* source_port ADDRESS: connections come from the source port that the program names, by either
 * function. Both ends are in this process. */
#include "check.h"

enum { PORT = 7471 };

enum how { BY_RESOLVING, BY_BINDING, BY_BINDING_TO_ANY, UNNAMED };

static const char *address;
static struct rdma_event_channel *of_server, *of_client;

static int port_of(struct rdma_cm_id *id) {
    return ntohs(rdma_get_src_port(id));
}

/* An identifier on its way to the listener from `port`, which other identifiers may be bound to. */
static struct rdma_cm_id *begin(enum how how, int port) {
    struct sockaddr_storage to = address_of(address, PORT);
    const char *any = to.ss_family == AF_INET ? "0.0.0.0" : "::";
    struct sockaddr_storage own = address_of(how == BY_BINDING_TO_ANY ? any : address, port);
    int is_bound = how == BY_BINDING || how == BY_BINDING_TO_ANY, yes = 1;
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    struct rdma_cm_id *id;
    CHECK(rdma_create_id(of_client, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes) == 0);
    if (is_bound)
        CHECK(rdma_bind_addr(id, (struct sockaddr *)&own) == 0 && port_of(id) == port);
    struct sockaddr *source = how == BY_RESOLVING ? (struct sockaddr *)&own : NULL;
    CHECK(rdma_resolve_addr(id, source, (struct sockaddr *)&to, 2000) == 0);
    pass(of_client, RDMA_CM_EVENT_ADDR_RESOLVED, id);
    CHECK(port_of(id) == port);
    CHECK(rdma_resolve_route(id, 2000) == 0);
    pass(of_client, RDMA_CM_EVENT_ROUTE_RESOLVED, id);
    add_queue_pair(id);
    CHECK(rdma_connect(id, &param) == 0);
    CHECK(how == UNNAMED ? port_of(id) != 0 : port_of(id) == port);
    return id;
}

static struct rdma_cm_id *serve(struct rdma_cm_id *listener, struct rdma_cm_id *client) {
    struct rdma_cm_id *peer = take_next(of_server, listener);
    CHECK(rdma_get_dst_port(peer) == rdma_get_src_port(client));
    accept_peer(of_server, peer);
    pass(of_client, RDMA_CM_EVENT_ESTABLISHED, client);
    CHECK(rdma_get_dst_port(peer) == rdma_get_src_port(client));
    return peer;
}

/* A second connection to the same peer cannot have the port. */
static void refuse(int port) {
    struct rdma_cm_id *id = begin(BY_RESOLVING, port);
    struct rdma_cm_event *event = expect(of_client, RDMA_CM_EVENT_CONNECT_ERROR, id);
    CHECK(event->status == -EADDRINUSE);
    CHECK(rdma_ack_cm_event(event) == 0);
    destroy(id);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    address = argv[1];
    of_server = rdma_create_event_channel();
    of_client = rdma_create_event_channel();
    struct sockaddr_storage local = address_of(address, PORT);
    struct rdma_cm_id *listener;
    CHECK(rdma_create_id(of_server, &listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&local) == 0);
    CHECK(rdma_listen(listener, 0) == 0);
    for (enum how how = BY_RESOLVING; how <= UNNAMED; how++) {
        int port = how == UNNAMED ? 0 : 5000 + how;
        struct rdma_cm_id *client = begin(how, port), *peer = serve(listener, client);
        if (how == BY_RESOLVING)
            refuse(port);
        destroy(client);
        destroy(peer);
    }
    CHECK(rdma_destroy_id(listener) == 0);
    rdma_destroy_event_channel(of_server);
    rdma_destroy_event_channel(of_client);
    printf("from the ports that were named\n");
    return 0;
}
