/* own_peer: a queue pair that is its own peer, brought up by ibv_modify_qp.
 * What it sends, writes and reads is compared. */
#include "check.h"
#include <infiniband/verbs.h>

enum { BYTES = 200000, ROUNDS = 50, PSN = 5 };

/* Source, where Sends and Reads go, and where Writes go and Reads come from. */
static char memory[3 * BYTES];

static void bring_up(struct ibv_context *context, struct ibv_qp *qp) {
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .rq_psn = PSN,
        .max_dest_rd_atomic = 4, .min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1}};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .sq_psn = PSN, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
    CHECK(ibv_query_gid(context, 1, 0, &rtr.ah_attr.grh.dgid) == 0);
    CHECK(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    CHECK(ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    CHECK(ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY
        | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void await_completions(struct ibv_cq *cq, int count) {
    while (count > 0) {
        struct ibv_wc wc;
        int taken = ibv_poll_cq(cq, 1, &wc);
        CHECK(taken >= 0);
        if (taken == 1)
            CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len <= BYTES);
        count -= taken;
    }
}

static void post(struct ibv_qp *qp, struct ibv_mr *mr, enum ibv_wr_opcode opcode, char *local) {
    struct ibv_sge piece = {.addr = (uintptr_t)local, .length = BYTES, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &piece, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)memory + 2 * BYTES;
    wr.wr.rdma.rkey = mr->rkey;
    CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

int main(void) {
    struct ibv_device **devices = ibv_get_device_list(NULL);
    CHECK(devices != NULL && devices[0] != NULL);
    struct ibv_context *context = ibv_open_device(devices[0]);
    CHECK(context != NULL);
    ibv_free_device_list(devices);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    CHECK(mr != NULL && qp != NULL);
    bring_up(context, qp);
    for (int round = 0; round < ROUNDS; round++) {
        struct ibv_sge piece = {.addr = (uintptr_t)memory + BYTES, .length = BYTES, .lkey = mr->lkey};
        struct ibv_recv_wr receive = {.sg_list = &piece, .num_sge = 1}, *bad;
        for (int at = 0; at < BYTES; at++)
            memory[at] = (char)(at * 7 + round);
        CHECK(ibv_post_recv(qp, &receive, &bad) == 0);
        post(qp, mr, IBV_WR_SEND, memory);
        post(qp, mr, IBV_WR_RDMA_WRITE, memory);
        await_completions(cq, 3);
        CHECK(memcmp(memory, memory + BYTES, BYTES) == 0 && memcmp(memory, memory + 2 * BYTES, BYTES) == 0);
        memset(memory + BYTES, 0, BYTES);
        post(qp, mr, IBV_WR_RDMA_READ, memory + BYTES);
        await_completions(cq, 1);
        CHECK(memcmp(memory, memory + BYTES, BYTES) == 0);
    }
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dereg_mr(mr) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    puts("all compared");
    return 0;
}
