// Endpoints of rdma_create_ep and the inline functions of rdma_verbs.h, between two hosts. Prints what was wrong, and returns 1 then.
//
//   endpoints server FAMILY     4 or 6: listens at the wildcard address; rejects the first peer and serves the second
//   endpoints client ADDRESS
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>
#include <stdlib.h>

#include "../../../rdma/dropin/tests/check.h"

#define PORT "7471"
#define LEN 64

// What the server tells in its answer.
struct place {
    uint64_t source, target;
    uint32_t source_key, target_key;
};

static char message[LEN], source[LEN] = "from the server", target[LEN];

// Makes an endpoint whose queue pairs have queues of their own.
static struct rdma_cm_id *endpoint(const char *node, int flags, int family)
{
    struct rdma_addrinfo hints = { .ai_flags = flags, .ai_family = family, .ai_port_space = RDMA_PS_TCP };
    struct ibv_qp_init_attr attr = {
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 32 },
        .sq_sig_all = 1,
    };
    struct rdma_addrinfo *info;
    struct rdma_cm_id *id;

    if (rdma_getaddrinfo(node, PORT, &hints, &info))
        return NULL;
    if (rdma_create_ep(&id, info, NULL, &attr))
        id = NULL;
    rdma_freeaddrinfo(info);
    return id;
}

// The private data of an event begin with this text.
static int tells(struct rdma_cm_event *event, const char *text)
{
    size_t length = strlen(text);
    struct rdma_conn_param *param = &event->param.conn;

    return param->private_data_len >= length && memcmp(param->private_data, text, length) == 0;
}

// Takes a completion of this kind.
static int done(struct rdma_cm_id *id, enum ibv_wc_opcode opcode)
{
    struct ibv_wc wc;
    int taken = opcode == IBV_WC_RECV ? rdma_get_recv_comp(id, &wc) : rdma_get_send_comp(id, &wc);

    return taken == 1 && wc.status == IBV_WC_SUCCESS && wc.opcode == opcode && wc.wr_id == (uintptr_t)id;
}

static int reject(struct rdma_cm_id *listener)
{
    struct rdma_cm_id *id;

    CHECK(rdma_get_request(listener, &id) == 0);
    CHECK(id->event && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(id->event->listen_id == listener && tells(id->event, "knock"));
    CHECK(rdma_reject(id, "full", 4) == 0 && !id->event);
    CHECK(rdma_reject(id, NULL, 0) == -1 && errno == EINVAL);
    rdma_destroy_ep(id);
    return 0;
}

static int serve(struct rdma_cm_id *listener)
{
    struct place place;
    struct rdma_conn_param param = { .private_data = &place, .private_data_len = sizeof place };
    struct ibv_mr *messages, *to_read, *to_write;
    struct rdma_cm_id *id;

    CHECK(rdma_get_request(listener, &id) == 0);
    CHECK(id->qp && id->pd && id->send_cq && id->recv_cq && id->send_cq_channel && id->recv_cq_channel);
    CHECK(rdma_get_local_addr(id)->sa_family == rdma_get_peer_addr(id)->sa_family);
    CHECK(ntohs(rdma_get_src_port(id)) == atoi(PORT) && rdma_get_dst_port(id));
    messages = rdma_reg_msgs(id, message, LEN);
    to_read = rdma_reg_read(id, source, LEN);
    to_write = rdma_reg_write(id, target, LEN);
    CHECK(messages && to_read && to_write);
    place = (struct place){ (uintptr_t)source, (uintptr_t)target, to_read->rkey, to_write->rkey };
    CHECK(rdma_post_recv(id, id, message, LEN, messages) == 0);
    param.responder_resources = param.initiator_depth = 1;
    CHECK(rdma_accept(id, &param) == 0 && id->qp->state == IBV_QPS_RTS);
    CHECK(done(id, IBV_WC_RECV) && strcmp(message, "written and read") == 0);
    CHECK(strcmp(target, "from the client") == 0);
    CHECK(rdma_post_send(id, id, "seen", 5, NULL, IBV_SEND_INLINE) == 0 && done(id, IBV_WC_SEND));
    CHECK(rdma_disconnect(id) == 0);
    CHECK(rdma_disconnect(id) == -1 && errno == EINVAL);
    CHECK(rdma_dereg_mr(messages) == 0 && rdma_dereg_mr(to_read) == 0 && rdma_dereg_mr(to_write) == 0);
    rdma_destroy_ep(id);
    return 0;
}

static int server(int family)
{
    struct rdma_cm_id *listener = endpoint(NULL, RAI_PASSIVE | RAI_FAMILY, family);

    CHECK(listener && !listener->qp && rdma_listen(listener, 4) == 0);
    CHECK(rdma_listen(listener, 4) == -1 && errno == EINVAL);
    if (reject(listener) || serve(listener))
        return 1;
    rdma_destroy_ep(listener);
    return 0;
}

static int is_rejected(const char *address)
{
    struct rdma_conn_param param = { .private_data = "knock", .private_data_len = 5 };
    struct rdma_cm_id *id = endpoint(address, 0, 0);

    CHECK(id && id->qp && id->verbs && id->port_num == 1);
    CHECK(rdma_connect(id, &param) == -1 && errno == ECONNREFUSED);
    CHECK(id->event && id->event->event == RDMA_CM_EVENT_REJECTED);
    CHECK(id->event->status == -ECONNREFUSED && tells(id->event, "full"));
    CHECK(rdma_connect(id, &param) == -1 && errno == EINVAL);
    rdma_destroy_ep(id);
    return 0;
}

// Writes to the server, reads from it, and exchanges a message.
static int exchange(struct rdma_cm_id *id, struct place *place)
{
    static char bytes[LEN] = "from the client", sink[LEN];
    struct ibv_mr *from = rdma_reg_msgs(id, bytes, LEN), *to = rdma_reg_msgs(id, sink, LEN);
    struct ibv_mr *messages = rdma_reg_msgs(id, message, LEN);

    CHECK(from && to && messages);
    CHECK(rdma_post_recv(id, id, message, LEN, messages) == 0);
    CHECK(rdma_post_write(id, id, bytes, LEN, from, 0, place->target, place->target_key) == 0);
    CHECK(done(id, IBV_WC_RDMA_WRITE));
    CHECK(rdma_post_read(id, id, sink, LEN, to, 0, place->source, place->source_key) == 0);
    CHECK(done(id, IBV_WC_RDMA_READ) && strcmp(sink, "from the server") == 0);
    strcpy(bytes, "written and read");
    CHECK(rdma_post_send(id, id, bytes, LEN, from, 0) == 0 && done(id, IBV_WC_SEND));
    CHECK(done(id, IBV_WC_RECV) && strcmp(message, "seen") == 0);
    CHECK(rdma_dereg_mr(from) == 0 && rdma_dereg_mr(to) == 0 && rdma_dereg_mr(messages) == 0);
    return 0;
}

static _Atomic int is_moving, is_acknowledged;

// Makes an identifier synchronous; NULL if that has waited for the event to be acknowledged.
static void *make_synchronous(void *id)
{
    is_moving = 1;
    return rdma_migrate_id(id, NULL) == 0 && is_acknowledged ? NULL : id;
}

// The end of the connection is told by a channel that the identifier is moved to.
static int disconnect(struct rdma_cm_id *id)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_event *event;
    pthread_t mover;
    void *failed;

    CHECK(channel && rdma_migrate_id(id, channel) == 0 && id->channel == channel && !id->event);
    CHECK(rdma_disconnect(id) == 0);
    CHECK(rdma_get_cm_event(channel, &event) == 0);
    CHECK(event->event == RDMA_CM_EVENT_DISCONNECTED && event->id == id && event->status == 0);
    CHECK(pthread_create(&mover, NULL, make_synchronous, id) == 0);
    for (int turns = 0; turns < 100; turns += is_moving)
        sched_yield();
    CHECK(id->channel == channel);
    is_acknowledged = 1;
    CHECK(rdma_ack_cm_event(event) == 0);
    CHECK(pthread_join(mover, &failed) == 0 && !failed);
    CHECK(id->channel && id->channel != channel);
    rdma_destroy_ep(id);
    rdma_destroy_event_channel(channel);
    return 0;
}

static int client(const char *address)
{
    struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
    struct rdma_cm_id *id;
    struct place place;

    if (is_rejected(address))
        return 1;
    id = endpoint(address, 0, 0);
    CHECK(id && rdma_connect(id, &param) == 0 && id->qp->state == IBV_QPS_RTS);
    CHECK(id->event->event == RDMA_CM_EVENT_ESTABLISHED);
    CHECK(id->event->param.conn.private_data_len >= sizeof place);
    memcpy(&place, id->event->param.conn.private_data, sizeof place);
    CHECK(ntohs(rdma_get_dst_port(id)) == atoi(PORT) && rdma_get_src_port(id));
    CHECK(rdma_notify(id, IBV_EVENT_COMM_EST) == 0);
    MINUS(rdma_establish(id), EINVAL);
    return exchange(id, &place) || disconnect(id);
}

int main(int count, char **words)
{
    if (count == 3 && strcmp(words[1], "server") == 0)
        return server(strcmp(words[2], "6") == 0 ? AF_INET6 : AF_INET);
    return count == 3 ? client(words[2]) : 2;
}
