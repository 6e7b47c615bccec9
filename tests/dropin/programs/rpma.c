// librpma between two hosts: the client writes and flushes memory of the server, reads it back and compares. The server compares, too.
//
//   rpma server ADDRESS
//   rpma client ADDRESS
#include <librpma.h>
#include <stdint.h>

#include "check.h"

#define PORT "7471"
#define LEN (1 << 20)
#define USAGE (RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_WRITE_DST \
    | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY)
// Where the client writes a word at once, behind what it writes else.
#define WORD (LEN - 8)

static uint8_t source[LEN], target[LEN];
static const char word[8] = "at once";

static uint8_t pattern(size_t at)
{
    return at * 7 + at / 251;
}

static void compare(const uint8_t *bytes)
{
    for (size_t at = 0; at < WORD; at++)
        CHECK(bytes[at] == pattern(at));
    CHECK(memcmp(bytes + WORD, word, sizeof word) == 0);
}

static struct rpma_peer *peer_of(const char *address, enum rpma_util_ibv_context_type type)
{
    struct ibv_context *context;
    struct rpma_peer *peer;
    CHECK(rpma_utils_get_ibv_context(address, type, &context) == 0);
    CHECK(rpma_peer_new(context, &peer) == 0);
    return peer;
}

static struct rpma_mr_local *registered(struct rpma_peer *peer, void *memory)
{
    struct rpma_mr_local *mr;
    CHECK(rpma_mr_reg(peer, memory, LEN, USAGE, &mr) == 0);
    return mr;
}

static void expect_next(struct rpma_conn *conn, enum rpma_conn_event wanted)
{
    enum rpma_conn_event event;
    CHECK(rpma_conn_next_event(conn, &event) == 0);
    CHECK(event == wanted);
}

static void serve(const char *address)
{
    struct rpma_peer *peer = peer_of(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
    struct rpma_mr_local *mr = registered(peer, target);
    uint8_t descriptor[64];
    size_t size;
    struct rpma_ep *ep;
    struct rpma_conn_req *request;
    struct rpma_conn *conn;
    CHECK(rpma_mr_get_descriptor_size(mr, &size) == 0 && size <= sizeof descriptor);
    CHECK(rpma_mr_get_descriptor(mr, descriptor) == 0);
    CHECK(rpma_ep_listen(peer, address, PORT, &ep) == 0);
    CHECK(rpma_ep_next_conn_req(ep, NULL, &request) == 0);
    struct rpma_conn_private_data told = { .ptr = descriptor, .len = size };
    CHECK(rpma_conn_req_connect(&request, &told, &conn) == 0);
    expect_next(conn, RPMA_CONN_ESTABLISHED);
    expect_next(conn, RPMA_CONN_CLOSED);
    compare(target);
    CHECK(rpma_conn_disconnect(conn) == 0);
    CHECK(rpma_conn_delete(&conn) == 0);
    CHECK(rpma_ep_shutdown(&ep) == 0);
    CHECK(rpma_mr_dereg(&mr) == 0);
    CHECK(rpma_peer_delete(&peer) == 0);
}

// Waits for the completion of an operation.
static void complete(struct rpma_conn *conn, const void *operation)
{
    struct rpma_cq *cq;
    struct ibv_wc wc;
    CHECK(rpma_conn_get_cq(conn, &cq) == 0);
    CHECK(rpma_cq_wait(cq) == 0);
    CHECK(rpma_cq_get_wc(cq, 1, &wc, NULL) == 0);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uintptr_t)operation);
}

static void use(struct rpma_conn *conn, struct rpma_mr_remote *remote, struct rpma_mr_local *from, struct rpma_mr_local *back)
{
    CHECK(rpma_write(conn, remote, 0, from, 0, WORD, RPMA_F_COMPLETION_ON_ERROR, NULL) == 0);
    CHECK(rpma_flush(conn, remote, 0, WORD, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, source) == 0);
    complete(conn, source);
    CHECK(rpma_atomic_write(conn, remote, WORD, word, RPMA_F_COMPLETION_ALWAYS, word) == 0);
    complete(conn, word);
    CHECK(rpma_read(conn, back, 0, remote, 0, LEN, RPMA_F_COMPLETION_ALWAYS, target) == 0);
    complete(conn, target);
    compare(target);
}

static void ask(const char *address)
{
    struct rpma_peer *peer = peer_of(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
    struct rpma_mr_local *from = registered(peer, source), *back = registered(peer, target);
    struct rpma_conn_req *request;
    struct rpma_conn *conn;
    struct rpma_conn_private_data told;
    struct rpma_mr_remote *remote;
    for (size_t at = 0; at < LEN; at++)
        source[at] = pattern(at);
    CHECK(rpma_conn_req_new(peer, address, PORT, NULL, &request) == 0);
    CHECK(rpma_conn_req_connect(&request, NULL, &conn) == 0);
    expect_next(conn, RPMA_CONN_ESTABLISHED);
    CHECK(rpma_conn_get_private_data(conn, &told) == 0 && told.len > 0);
    size_t size;
    CHECK(rpma_mr_get_descriptor_size(from, &size) == 0 && size <= told.len);
    CHECK(rpma_mr_remote_from_descriptor(told.ptr, size, &remote) == 0);
    use(conn, remote, from, back);
    CHECK(rpma_conn_disconnect(conn) == 0);
    expect_next(conn, RPMA_CONN_CLOSED);
    CHECK(rpma_mr_remote_delete(&remote) == 0);
    CHECK(rpma_conn_delete(&conn) == 0);
    CHECK(rpma_mr_dereg(&from) == 0);
    CHECK(rpma_mr_dereg(&back) == 0);
    CHECK(rpma_peer_delete(&peer) == 0);
    puts("the server's memory is as it should be");
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    if (strcmp(argv[1], "server") == 0)
        serve(argv[2]);
    else
        ask(argv[2]);
    return 0;
}
