/* A store of values by their keys, as in an in-memory database: one thread serves all clients in an event loop.
 *
 *   store server ADDRESS CLIENTS: serves that many clients, at once, and ends after the last one.
 *   store client ADDRESS NUMBER: sets values of its own keys, gets them again and compares. */
#include <fcntl.h>
#include <sys/epoll.h>
#include "check.h"

enum { PORT = 6379, KEYS = 200, LONGEST = 8192, DEPTH = 4, MANY = 16 };
enum { SET = 1, GET = 2, DONE = 3 };

struct message {
    uint32_t what, key, len;
    unsigned char value[LONGEST];
};

struct connection {
    struct rdma_cm_id *id;
    struct ibv_mr *mr;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct message in[DEPTH], out;
    /* The message out is being sent, and the request that waits for it to be free. */
    int is_sending, waiting;
};

static void receive(struct connection *it, int slot) {
    struct ibv_sge sge = {.addr = (uintptr_t)&it->in[slot], .length = sizeof it->in[slot], .lkey = it->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(ibv_post_recv(it->id->qp, &wr, &bad) == 0);
}

/* Sends what is in the message out. */
static void send_out(struct connection *it) {
    uint32_t bytes = offsetof(struct message, value) + it->out.len;
    struct ibv_sge sge = {.addr = (uintptr_t)&it->out, .length = bytes, .lkey = it->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = DEPTH, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    CHECK(ibv_post_send(it->id->qp, &wr, &bad) == 0);
}

/* Gives an identifier all that it needs, and buffers that wait for messages. */
static struct connection *equip(struct rdma_cm_id *id) {
    struct connection *it = calloc(1, sizeof *it);
    CHECK(it != NULL);
    it->id = id;
    it->waiting = -1;
    id->context = it;
    CHECK((it->channel = ibv_create_comp_channel(id->verbs)) != NULL);
    CHECK((it->cq = ibv_create_cq(id->verbs, 4 * DEPTH, NULL, it->channel, 0)) != NULL);
    CHECK(ibv_req_notify_cq(it->cq, 0) == 0);
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .send_cq = it->cq, .recv_cq = it->cq,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};
    CHECK(rdma_create_qp(id, NULL, &attr) == 0);
    CHECK((it->mr = ibv_reg_mr(id->pd, it, sizeof *it, IBV_ACCESS_LOCAL_WRITE)) != NULL);
    for (int slot = 0; slot < DEPTH; slot++)
        receive(it, slot);
    return it;
}

static void drop(struct connection *it) {
    rdma_destroy_qp(it->id);
    CHECK(ibv_dereg_mr(it->mr) == 0);
    CHECK(ibv_destroy_cq(it->cq) == 0);
    CHECK(ibv_destroy_comp_channel(it->channel) == 0);
    CHECK(rdma_destroy_id(it->id) == 0);
    free(it);
}

/* Waits for the event of a completion, and asks for the next one. */
static void take_event(struct connection *it) {
    struct ibv_cq *cq;
    void *context;
    CHECK(ibv_get_cq_event(it->channel, &cq, &context) == 0 && cq == it->cq);
    ibv_ack_cq_events(cq, 1);
    CHECK(ibv_req_notify_cq(cq, 0) == 0);
}

static struct message store[MANY * KEYS];

static void answer(struct connection *it, const struct message *request) {
    CHECK(request->key < MANY * KEYS && request->len <= LONGEST);
    if (request->what == SET)
        store[request->key] = *request;
    it->out = request->what == SET ? (struct message){.key = request->key} : store[request->key];
    it->out.what = DONE;
    send_out(it);
    it->is_sending = 1;
}

static void answer_waiting(struct connection *it) {
    if (it->is_sending || it->waiting < 0)
        return;
    answer(it, &it->in[it->waiting]);
    receive(it, it->waiting);
    it->waiting = -1;
}

/* Serves all that has come of a client's, which sends its next request after the answer. */
static void serve_client(struct connection *it) {
    struct ibv_wc wc;
    take_event(it);
    while (ibv_poll_cq(it->cq, 1, &wc) > 0) {
        if (wc.status == IBV_WC_WR_FLUSH_ERR)
            continue;
        CHECK(wc.status == IBV_WC_SUCCESS);
        if (wc.opcode == IBV_WC_RECV)
            it->waiting = wc.wr_id;
        else
            it->is_sending = 0;
        answer_waiting(it);
    }
}

static void watch(int epoll, int fd, void *what) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void serve(const char *address, int clients) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_storage local = address_of(address, PORT);
    struct rdma_cm_id *listener;
    int epoll = epoll_create1(0), most = 0, open = 0, gone = 0;
    CHECK(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&local) == 0);
    CHECK(rdma_listen(listener, MANY) == 0);
    watch(epoll, channel->fd, NULL);
    while (gone < clients) {
        struct epoll_event ready;
        struct rdma_cm_event *event;
        CHECK(epoll_wait(epoll, &ready, 1, -1) == 1);
        if (ready.data.ptr != NULL) {
            serve_client(ready.data.ptr);
            continue;
        }
        while (rdma_get_cm_event(channel, &event) == 0) {
            struct rdma_cm_id *id = event->id;
            enum rdma_cm_event_type kind = event->event;
            CHECK(rdma_ack_cm_event(event) == 0);
            if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
                struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
                struct connection *it = equip(id);
                watch(epoll, it->channel->fd, it);
                CHECK(rdma_accept(id, &param) == 0);
            } else if (kind == RDMA_CM_EVENT_ESTABLISHED) {
                open++;
                most = open > most ? open : most;
            } else {
                CHECK(kind == RDMA_CM_EVENT_DISCONNECTED);
                drop(id->context);
                open--;
                gone++;
            }
        }
        CHECK(errno == EAGAIN);
    }
    CHECK(rdma_destroy_id(listener) == 0);
    rdma_destroy_event_channel(channel);
    printf("served %d clients, %d at once\n", gone, most);
}

static unsigned char byte_of(uint32_t key, uint32_t place) {
    return key * 31 + place * 7 + place / 256;
}

/* Sends the request in the message out, and waits for the answer. */
static const struct message *ask(struct connection *it, int *answered) {
    const struct message *answer = NULL;
    send_out(it);
    for (int left = 2; left > 0;) {
        struct ibv_wc wc;
        take_event(it);
        for (; ibv_poll_cq(it->cq, 1, &wc) > 0; left--) {
            CHECK(wc.status == IBV_WC_SUCCESS);
            if (wc.opcode == IBV_WC_RECV)
                answer = &it->in[wc.wr_id];
        }
    }
    CHECK(answer != NULL && answer->what == DONE && answer->key == it->out.key);
    receive(it, (*answered)++ % DEPTH);
    return answer;
}

static void use(const char *address, int number) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_storage remote = address_of(address, PORT);
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    struct rdma_cm_id *id;
    int answered = 0;
    CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&remote, 2000) == 0);
    pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED, id);
    CHECK(rdma_resolve_route(id, 2000) == 0);
    pass(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, id);
    struct connection *it = equip(id);
    CHECK(rdma_connect(id, &param) == 0);
    pass(channel, RDMA_CM_EVENT_ESTABLISHED, id);
    for (uint32_t i = 0; i < KEYS; i++) {
        it->out = (struct message){.what = SET, .key = number * KEYS + i, .len = i * LONGEST / KEYS + 1};
        for (uint32_t place = 0; place < it->out.len; place++)
            it->out.value[place] = byte_of(it->out.key, place);
        ask(it, &answered);
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        it->out = (struct message){.what = GET, .key = number * KEYS + i};
        const struct message *answer = ask(it, &answered);
        CHECK(answer->len == i * LONGEST / KEYS + 1);
        for (uint32_t place = 0; place < answer->len; place++)
            CHECK(answer->value[place] == byte_of(answer->key, place));
    }
    CHECK(rdma_disconnect(id) == 0);
    pass(channel, RDMA_CM_EVENT_DISCONNECTED, id);
    drop(it);
    rdma_destroy_event_channel(channel);
    printf("client %d has compared all\n", number);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    if (strcmp(argv[1], "server") == 0)
        serve(argv[2], atoi(argv[3]));
    else
        use(argv[2], atoi(argv[3]));
    return 0;
}
