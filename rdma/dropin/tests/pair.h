// Both ends of a connection in this process, over an address of the host's own. What is not as it
// should be ends the process.
#pragma once
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(what)                                                                   \
    do {                                                                             \
        errno = 0;                                                                   \
        if (!(what)) {                                                               \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, strerror(errno)); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

enum { MEMORY = 8192, DEPTH = 64 };

struct end {
    struct rdma_cm_id *id;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    char memory[MEMORY];
};

struct pair {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener;
    struct end client, server;
};

static inline struct sockaddr_in address_of(const char *text, int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };

    MUST(inet_pton(AF_INET, text, &address.sin_addr) == 1);
    return address;
}

// The next event of a channel, which is of this kind. Its identifier; the event is acknowledged.
static inline struct rdma_cm_id *pass(struct rdma_event_channel *channel, enum rdma_cm_event_type kind)
{
    struct rdma_cm_event *event;
    int failed;

    do
        failed = rdma_get_cm_event(channel, &event);
    while (failed && errno == EINTR);
    MUST(!failed);
    if (event->event != kind) {
        fprintf(stderr, "%s (%d) instead of %s\n", rdma_event_str(event->event), event->status, rdma_event_str(kind));
        exit(1);
    }
    struct rdma_cm_id *id = event->id;
    MUST(rdma_ack_cm_event(event) == 0);
    return id;
}

static inline void resolve(struct rdma_event_channel *channel, struct rdma_cm_id **id, const char *to, int port)
{
    struct sockaddr_in address = address_of(to, port);

    MUST(rdma_create_id(channel, id, NULL, RDMA_PS_TCP) == 0);
    MUST(rdma_resolve_addr(*id, NULL, (struct sockaddr *)&address, 2000) == 0);
    pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    MUST(rdma_resolve_route(*id, 2000) == 0);
    pass(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static inline void give_objects(struct end *end, struct rdma_cm_id *id)
{
    int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

    end->id = id;
    MUST(end->cq = ibv_create_cq(id->verbs, 4 * DEPTH, NULL, NULL, 0));
    struct ibv_qp_init_attr init = {
        .send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    MUST(rdma_create_qp(id, NULL, &init) == 0);
    MUST(end->mr = ibv_reg_mr(id->pd, end->memory, MEMORY, rights));
}

static inline void listen_at(struct pair *pair, const char *at, int port)
{
    struct sockaddr_in address = address_of(at, port);

    MUST(pair->channel = rdma_create_event_channel());
    MUST(rdma_create_id(pair->channel, &pair->listener, NULL, RDMA_PS_TCP) == 0);
    MUST(rdma_bind_addr(pair->listener, (struct sockaddr *)&address) == 0);
    MUST(rdma_listen(pair->listener, 16) == 0);
}

static inline void connect_pair(struct pair *pair, const char *at, int port)
{
    struct rdma_conn_param param = { .responder_resources = 4, .initiator_depth = 4 };
    struct rdma_cm_id *id;

    resolve(pair->channel, &id, at, port);
    give_objects(&pair->client, id);
    MUST(rdma_connect(id, &param) == 0);
    give_objects(&pair->server, pass(pair->channel, RDMA_CM_EVENT_CONNECT_REQUEST));
    MUST(rdma_accept(pair->server.id, &param) == 0);
    pass(pair->channel, RDMA_CM_EVENT_ESTABLISHED);
    pass(pair->channel, RDMA_CM_EVENT_ESTABLISHED);
}

// Posts a Write of some bytes to the same place of the end `to`.
static inline int post_write(struct end *from, struct end *to, uint32_t bytes)
{
    struct ibv_sge sge = { (uintptr_t)from->memory, bytes, from->mr->lkey };
    struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;

    wr.wr.rdma.remote_addr = (uintptr_t)to->memory;
    wr.wr.rdma.rkey = to->mr->rkey;
    return ibv_post_send(from->id->qp, &wr, &bad);
}

// Writes some bytes, and waits until that has completed.
static inline void write_and_wait(struct end *from, struct end *to, uint32_t bytes)
{
    struct ibv_wc wc;
    int taken;

    MUST(post_write(from, to, bytes) == 0);
    while ((taken = ibv_poll_cq(from->cq, 1, &wc)) == 0)
        ;
    MUST(taken == 1 && wc.status == IBV_WC_SUCCESS);
}

static inline void end_one(struct end *end)
{
    rdma_destroy_qp(end->id);
    MUST(ibv_dereg_mr(end->mr) == 0 && ibv_destroy_cq(end->cq) == 0);
    MUST(rdma_destroy_id(end->id) == 0);
}

static inline void end_pair(struct pair *pair)
{
    end_one(&pair->client);
    end_one(&pair->server);
    MUST(rdma_destroy_id(pair->listener) == 0);
    rdma_destroy_event_channel(pair->channel);
}
