/* What the programs have in common: they end with a message where anything is not as it should be. */
#pragma once
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>

#define CHECK(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno));      \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

/* The next event of a channel, which has to be of this kind and about this identifier, unless that is null. To be acknowledged. */
static inline struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type kind, struct rdma_cm_id *id) {
    struct rdma_cm_event *event;
    CHECK(rdma_get_cm_event(channel, &event) == 0);
    if (event->event != kind || (id != NULL && event->id != id)) {
        fprintf(stderr, "%s (%d) instead of %s\n", rdma_event_str(event->event), event->status, rdma_event_str(kind));
        exit(1);
    }
    return event;
}

/* The same, of which nothing more is wanted. */
static inline void pass(struct rdma_event_channel *channel, enum rdma_cm_event_type kind, struct rdma_cm_id *id) {
    CHECK(rdma_ack_cm_event(expect(channel, kind, id)) == 0);
}

/* An address of either family, by its text. */
static inline struct sockaddr_storage address_of(const char *text, int port) {
    struct sockaddr_storage address = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address;
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
    } else {
        CHECK(inet_pton(AF_INET6, text, &v6->sin6_addr) == 1);
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
    }
    return address;
}

/* Gives an identifier a queue pair of the default domain. */
static inline void add_queue_pair(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    CHECK(rdma_create_qp(id, NULL, &attr) == 0);
}

/* An identifier that is on its way to a peer. */
static inline struct rdma_cm_id *begin_to_connect(struct rdma_event_channel *channel, const char *to, int port) {
    struct rdma_cm_id *id;
    struct sockaddr_storage address = address_of(to, port);
    CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
    pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED, id);
    CHECK(rdma_resolve_route(id, 2000) == 0);
    pass(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, id);
    add_queue_pair(id);
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    CHECK(rdma_connect(id, &param) == 0);
    return id;
}

/* The next peer of a listener, which waits for an answer. */
static inline struct rdma_cm_id *take_next(struct rdma_event_channel *channel, struct rdma_cm_id *listener) {
    struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
    struct rdma_cm_id *id = event->id;
    CHECK(event->listen_id == listener);
    CHECK(rdma_ack_cm_event(event) == 0);
    return id;
}

/* Accepts a peer. */
static inline void accept_peer(struct rdma_event_channel *channel, struct rdma_cm_id *id) {
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    add_queue_pair(id);
    CHECK(rdma_accept(id, &param) == 0);
    pass(channel, RDMA_CM_EVENT_ESTABLISHED, id);
}

static inline void destroy(struct rdma_cm_id *id) {
    rdma_destroy_qp(id);
    CHECK(rdma_destroy_id(id) == 0);
}
