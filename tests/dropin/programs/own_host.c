/* own_host LISTEN CONNECT: both ends of a connection in this process. The server listens at one address, the client connects to the other.
 * A Send, a Write back and a Read are compared. */
#include "check.h"
#include <pthread.h>
#include <rdma/rdma_verbs.h>

enum { PORT = 7471, BYTES = 200000 };

/* Where the server may write and read. */
struct place {
    uint64_t address;
    uint32_t key;
};

static void *serve(void *argument) {
    struct rdma_cm_id *listener = argument, *id;
    char *memory = calloc(1, BYTES);
    struct place place;
    struct ibv_wc wc;
    CHECK(rdma_get_request(listener, &id) == 0);
    struct ibv_mr *region = rdma_reg_msgs(id, memory, BYTES);
    CHECK(region != NULL);
    CHECK(rdma_post_recv(id, NULL, memory, BYTES, region) == 0);
    CHECK(rdma_accept(id, NULL) == 0);
    CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.byte_len == BYTES);
    memcpy(&place, memory, sizeof place);
    for (int at = sizeof place; at < BYTES; at++)
        CHECK(memory[at] == (char)(at * 7));
    /* What has come goes back, one more each byte; the last write tells the client. */
    for (int at = 0; at < BYTES; at++)
        memory[at]++;
    CHECK(rdma_post_write(id, NULL, memory, BYTES, region, IBV_SEND_SIGNALED, place.address, place.key) == 0);
    CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(rdma_post_send(id, NULL, memory, 1, region, IBV_SEND_SIGNALED) == 0);
    CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    /* The client may have closed already, and then there is nothing to close. */
    CHECK(rdma_disconnect(id) == 0);
    rdma_dereg_mr(region);
    rdma_destroy_ep(id);
    free(memory);
    return NULL;
}

static void connect_to(const char *address) {
    char port[8], *memory = calloc(1, BYTES), *sink = calloc(1, BYTES);
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    struct rdma_cm_id *id;
    struct ibv_wc wc;
    snprintf(port, sizeof port, "%d", PORT);
    CHECK(rdma_getaddrinfo(address, port, &hints, &found) == 0);
    CHECK(rdma_create_ep(&id, found, NULL, &attr) == 0);
    rdma_freeaddrinfo(found);
    struct ibv_mr *region = rdma_reg_msgs(id, memory, BYTES);
    struct ibv_mr *target = rdma_reg_write(id, sink, BYTES);
    CHECK(region != NULL && target != NULL);
    struct place place = {.address = (uintptr_t)sink, .key = target->rkey};
    for (int at = 0; at < BYTES; at++)
        memory[at] = (char)(at * 7);
    memcpy(memory, &place, sizeof place);
    CHECK(rdma_connect(id, NULL) == 0);
    char last;
    struct ibv_mr *for_last = rdma_reg_msgs(id, &last, 1);
    CHECK(for_last != NULL && rdma_post_recv(id, NULL, &last, 1, for_last) == 0);
    CHECK(rdma_post_send(id, NULL, memory, BYTES, region, IBV_SEND_SIGNALED) == 0);
    CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    for (int at = 0; at < BYTES; at++)
        CHECK(sink[at] == (char)(memory[at] + 1));
    CHECK(rdma_disconnect(id) == 0);
    rdma_dereg_mr(for_last);
    rdma_dereg_mr(target);
    rdma_dereg_mr(region);
    rdma_destroy_ep(id);
    free(sink);
    free(memory);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    struct sockaddr_storage local = address_of(argv[1], PORT);
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    struct rdma_addrinfo wanted = {.ai_flags = RAI_PASSIVE, .ai_family = local.ss_family,
        .ai_port_space = RDMA_PS_TCP, .ai_src_addr = (struct sockaddr *)&local, .ai_src_len = sizeof local};
    struct rdma_cm_id *listener;
    pthread_t server;
    CHECK(rdma_create_ep(&listener, &wanted, NULL, &attr) == 0);
    CHECK(rdma_listen(listener, 0) == 0);
    CHECK(pthread_create(&server, NULL, serve, listener) == 0);
    connect_to(argv[2]);
    CHECK(pthread_join(server, NULL) == 0);
    rdma_destroy_ep(listener);
    printf("%d bytes came back as they should\n", BYTES);
    return 0;
}
