// A program of C on the installed headers: what iWARP does not have is refused by the error number
// that its manual page has. A line for each thing of DESIGN.md's table. Prints what was wrong, and
// returns 1 then.
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdlib.h>

#include "check.h"

static char memory[4096];

struct objects {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
};

static struct ibv_qp *create(struct objects *made, enum ibv_qp_type type)
{
    struct ibv_qp_init_attr init = {
        .send_cq = made->cq, .recv_cq = made->cq, .qp_type = type,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 2 },
    };
    return ibv_create_qp(made->pd, &init);
}

static int queue_pairs(struct objects *made)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
    struct ibv_ece ece = { .options = 1 };

    NONE(create(made, IBV_QPT_UD), EOPNOTSUPP);
    NONE(create(made, IBV_QPT_RAW_PACKET), EOPNOTSUPP);
    NONE(create(made, IBV_QPT_XRC_SEND), EOPNOTSUPP);
    NONE(create(made, IBV_QPT_XRC_RECV), EOPNOTSUPP);
    CHECK(ibv_modify_qp(made->qp, &attr, IBV_QP_STATE) == EOPNOTSUPP);
    attr.qp_state = IBV_QPS_INIT;
    CHECK(ibv_modify_qp(made->qp, &attr, IBV_QP_STATE) == 0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK(ibv_modify_qp(made->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN) == EINVAL);
    // A peer is not reached by a LID, and how to name it instead is said once.
    for (int time = 0; time < 2; time++)
        CHECK(ibv_modify_qp(made->qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == EINVAL);
    CHECK(ibv_modify_qp(made->qp, &attr, IBV_QP_CAP) == EOPNOTSUPP);
    CHECK(ibv_modify_qp_rate_limit(made->qp, &(struct ibv_qp_rate_limit_attr){ 0 }) == EOPNOTSUPP);
    CHECK(ibv_set_ece(made->qp, &ece) == EOPNOTSUPP && ibv_query_ece(made->qp, &ece) == 0 && ece.options == 0);
    return 0;
}

static int requests(struct objects *made)
{
    struct ibv_sge sges[2] = { { (uintptr_t)memory, 8, made->mr->lkey }, { (uintptr_t)memory, 8, made->mr->lkey } };
    struct ibv_send_wr wr = { .sg_list = sges, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM }, *bad;
    struct ibv_mw window = { .type = IBV_MW_TYPE_2 };

    CHECK(ibv_post_send(made->qp, &wr, &bad) == EOPNOTSUPP && bad == &wr);
    wr.opcode = IBV_WR_TSO;
    CHECK(ibv_post_send(made->qp, &wr, &bad) == EOPNOTSUPP);
    wr.opcode = IBV_WR_RDMA_READ;
    wr.num_sge = 2;
    CHECK(ibv_post_send(made->qp, &wr, &bad) == EINVAL);
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw.mw = &window;
    wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ made->mr, (uintptr_t)memory, 8, IBV_ACCESS_REMOTE_ATOMIC };
    CHECK(ibv_post_send(made->qp, &wr, &bad) == EOPNOTSUPP);
    return 0;
}

static int objects(struct objects *made)
{
    struct ibv_context *context = made->context;
    struct ibv_cq_init_attr_ex timed = { .cqe = 4, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
    struct ibv_srq_init_attr_ex tagged = { .comp_mask = IBV_SRQ_INIT_ATTR_TYPE, .srq_type = IBV_SRQT_TM };
    struct ibv_wc wc = { 0 };
    struct ibv_grh grh = { 0 };
    struct ibv_ah_attr to;
    union ibv_gid gid = { 0 };

    NONE(ibv_reg_mr(made->pd, memory, 64, IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
    NONE(ibv_reg_dmabuf_mr(made->pd, 0, 64, 0, 0, 0), EOPNOTSUPP);
    NONE(ibv_create_cq_ex(context, &timed), EOPNOTSUPP);
    CHECK(ibv_modify_cq(made->cq, &(struct ibv_modify_cq_attr){ 0 }) == EOPNOTSUPP);
    NONE(ibv_create_srq_ex(context, &tagged), EOPNOTSUPP);
    NONE(ibv_open_xrcd(context, &(struct ibv_xrcd_init_attr){ 0 }), EOPNOTSUPP);
    NONE(ibv_create_flow(made->qp, &(struct ibv_flow_attr){ 0 }), EOPNOTSUPP);
    NONE(ibv_create_wq(context, &(struct ibv_wq_init_attr){ 0 }), EOPNOTSUPP);
    NONE(ibv_create_rwq_ind_table(context, &(struct ibv_rwq_ind_table_init_attr){ 0 }), EOPNOTSUPP);
    NONE(ibv_create_counters(context, &(struct ibv_counters_init_attr){ 0 }), EOPNOTSUPP);
    NONE(ibv_alloc_dm(context, &(struct ibv_alloc_dm_attr){ 0 }), EOPNOTSUPP);
    NONE(ibv_alloc_null_mr(made->pd), EOPNOTSUPP);
    CHECK(ibv_attach_mcast(made->qp, &gid, 0) == EOPNOTSUPP && ibv_detach_mcast(made->qp, &gid, 0) == EOPNOTSUPP);
    NONE(ibv_create_ah_from_wc(made->pd, &wc, &grh, 1), EOPNOTSUPP);
    CHECK(ibv_init_ah_from_wc(context, 1, &wc, &grh, &to) == EOPNOTSUPP);
    NONE(ibv_import_device(0), EOPNOTSUPP);
    NONE(ibv_import_pd(context, 0), EOPNOTSUPP);
    NONE(ibv_import_mr(made->pd, 0), EOPNOTSUPP);
    NONE(ibv_import_dm(context, 0), EOPNOTSUPP);
    CHECK(!mlx5dv_is_supported(context->device));
    NONE(mlx5dv_open_device(context->device, NULL), EOPNOTSUPP);
    return 0;
}

static int connections(void)
{
    struct ibv_ece ece = { 0 };
    struct rdma_cm_id *id;

    MINUS(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP), EPROTONOSUPPORT);
    MINUS(rdma_create_id(NULL, &id, NULL, RDMA_PS_IPOIB), EPROTONOSUPPORT);
    CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
    MINUS(rdma_join_multicast(id, NULL, NULL), EOPNOTSUPP);
    MINUS(rdma_join_multicast_ex(id, NULL, NULL), EOPNOTSUPP);
    MINUS(rdma_leave_multicast(id, NULL), EOPNOTSUPP);
    MINUS(rdma_set_local_ece(id, &ece), ENOSYS);
    MINUS(rdma_get_remote_ece(id, &ece), ENOSYS);
    MINUS(rdma_reject_ece(id, NULL, 0), ENOSYS);
    MINUS(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, NULL, 0), ENOSYS);
    CHECK(rdma_destroy_id(id) == 0);
    MINUS(rsocket(AF_INET, SOCK_STREAM, 0), ENOSYS);
    MINUS(rsend(0, memory, 1, 0), ENOSYS);
    return 0;
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct objects made = { .context = ibv_open_device(list[0]) };

    ibv_free_device_list(list);
    made.pd = ibv_alloc_pd(made.context);
    made.cq = ibv_create_cq(made.context, 4, NULL, NULL, 0);
    made.mr = ibv_reg_mr(made.pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    made.qp = create(&made, IBV_QPT_RC);
    CHECK(made.context && made.pd && made.cq && made.mr && made.qp);
    if (queue_pairs(&made) || requests(&made) || objects(&made) || connections())
        return 1;
    CHECK(ibv_destroy_qp(made.qp) == 0 && ibv_dereg_mr(made.mr) == 0 && ibv_destroy_cq(made.cq) == 0);
    CHECK(ibv_dealloc_pd(made.pd) == 0 && ibv_close_device(made.context) == 0);
    return 0;
}
