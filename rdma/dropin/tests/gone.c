// A program of C on the installed headers: the interface is deleted under an open device. The
// program gets an event, and can flush and destroy all that it has. Prints what was wrong, and
// returns 1 then.
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <unistd.h>
#include "check.h"

static char memory[4096];

static int is_told(struct ibv_context *context)
{
    struct ibv_async_event event;

    do {
        CHECK(ibv_get_async_event(context, &event) == 0);
        CHECK(event.event_type == IBV_EVENT_PORT_ERR || event.event_type == IBV_EVENT_DEVICE_FATAL);
        ibv_ack_async_event(&event);
    } while (event.event_type != IBV_EVENT_DEVICE_FATAL);
    return 0;
}

// Waits for a completion, which is this one.
static int is_flushed(struct ibv_cq *cq, uint64_t wr_id)
{
    struct ibv_wc wc;
    int taken;

    while ((taken = ibv_poll_cq(cq, 1, &wc)) == 0)
        ;
    return taken == 1 && wc.wr_id == wr_id && wc.status == IBV_WC_WR_FLUSH_ERR;
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, channel, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 4, .max_send_sge = 1 },
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    union ibv_gid gid;
    struct ibv_send_wr wr = { .wr_id = 9, .opcode = IBV_WR_RDMA_WRITE }, *bad;
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
    struct ibv_port_attr port;

    ibv_free_device_list(list);
    // Who waits in vain for an event is ended.
    alarm(30);
    CHECK(pd && channel && cq && mr && mw && srq && qp);
    CHECK(system("ip link del dropin0") == 0);
    if (is_told(context))
        return 1;
    CHECK(ibv_query_port(context, 1, &port) == ENODEV && ibv_query_gid(context, 1, 0, &gid) == -1 && errno == ENODEV);
    // What it posts is flushed as ever.
    CHECK(ibv_post_send(qp, &wr, &bad) == 0 && ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    wr.wr_id = 8;
    CHECK(ibv_post_send(qp, &wr, &bad) == 0 && is_flushed(cq, 9) && is_flushed(cq, 8));
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_srq(srq) == 0 && ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mr) == 0);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    return 0;
}
