// A program of C on the installed headers: makes one object of each kind, and ends them. Prints what was wrong, and returns 1 then.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                  \
    do {                                                                             \
        if (!(what)) {                                                               \
            printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno));           \
            return 1;                                                                \
        }                                                                            \
    } while (0)

static char memory[4096];

// What needs no RNIC.
static int ask(struct ibv_context *context)
{
    struct ibv_device_attr_ex device;
    struct ibv_port_attr port;
    struct ibv_gid_entry entry;

    CHECK(ibv_query_device_ex(context, NULL, &device) == 0);
    CHECK(device.orig_attr.phys_port_cnt == 1 && device.orig_attr.max_sge == 16);
    CHECK(ibv_query_port(context, 1, &port) == 0);
    CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
    CHECK(ibv_query_gid_ex(context, 1, 0, &entry, 0) == 0);
    CHECK(ibv_query_gid_ex(context, 1, 1000, &entry, 0) == ENODATA);
    CHECK(ibv_query_port(context, 2, &port) == EINVAL);
    return 0;
}

// A queue pair that is not connected: its receive is flushed.
static int flush(struct ibv_context *context)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, memory, channel, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 64 };
    struct ibv_recv_wr recv = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 }, *bad;
    struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
    struct ibv_cq *got;
    struct ibv_wc wc;
    void *cq_context;

    CHECK(channel && pd && cq && mr && qp && qp->qp_num > 1);
    sge.lkey = mr->lkey;
    CHECK(ibv_post_recv(qp, &recv, &bad) == 0);
    CHECK(ibv_req_notify_cq(cq, 0) == 0 && ibv_poll_cq(cq, 1, &wc) == 0);
    CHECK(ibv_modify_qp(qp, &error, IBV_QP_STATE) == 0 && qp->state == IBV_QPS_ERR);
    CHECK(ibv_get_cq_event(channel, &got, &cq_context) == 0);
    CHECK(got == cq && cq_context == memory);
    ibv_ack_cq_events(cq, 1);
    CHECK(ibv_poll_cq(cq, 1, &wc) == 1);
    CHECK(wc.wr_id == 7 && wc.status == IBV_WC_WR_FLUSH_ERR && wc.qp_num == qp->qp_num);
    CHECK(ibv_dealloc_pd(pd) == EBUSY && ibv_destroy_cq(cq) == EBUSY);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_destroy_comp_channel(channel) == 0);
    return 0;
}

// A child has no engine: each call ends in ENODEV.
static int child(struct ibv_context *context)
{
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0)
        _exit(ibv_alloc_pd(context) != NULL || errno != ENODEV);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}

int main(void)
{
    int number;
    struct ibv_device **list = ibv_get_device_list(&number);
    struct ibv_context *context;

    CHECK(list && number == 1 && list[0] && !list[1]);
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    CHECK(context && strcmp(ibv_get_device_name(context->device), getenv("XWARP_DEV")) == 0);
    if (ask(context) || flush(context) || child(context))
        return 1;
    CHECK(ibv_close_device(context) == 0);
    return 0;
}
