// A program of C on the installed headers: makes one object of each kind, and ends them. Prints
// what was wrong, and returns 1 then.
#include <infiniband/verbs.h>
#include <net/if.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static char memory[4096];

// Of infiniband/driver.h, which is not installed.
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);

// Functions without a header of their own, which ibv_devinfo and pyverbs call.
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, unsigned int *type);
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *directory, const char *file, char *buffer, size_t size);

// The port's tables: GIDs, and the one partition key.
static int tables(struct ibv_context *context)
{
    static const uint8_t mapped[16] = { [10] = 0xff, 0xff, 10, 99, 0, 1 };
    struct ibv_gid_entry entries[16];
    struct ibv_port_attr port;
    union ibv_gid gid;
    unsigned int type;
    __be16 key;

    CHECK(ibv_query_port(context, 1, &port) == 0);
    CHECK(ibv_query_gid_table(context, entries, 16, 0) == port.gid_tbl_len && port.gid_tbl_len > 0);
    CHECK(memcmp(entries[0].gid.raw, mapped, sizeof mapped) == 0 && entries[0].gid_type == IBV_GID_TYPE_ROCE_V2);
    CHECK(entries[0].ndev_ifindex == if_nametoindex("dropin0") && entries[0].port_num == 1);
    CHECK(ibv_query_gid_table(context, entries, 0, 0) == -EINVAL && ibv_query_gid_table(context, entries, 16, 1) == -EOPNOTSUPP);
    CHECK(ibv_query_gid(context, 1, 0, &gid) == 0 && memcmp(gid.raw, mapped, sizeof mapped) == 0);
    CHECK(ibv_query_gid(context, 1, 1000, &gid) == -1 && ibv_query_gid(context, 2, 0, &gid) == -1);
    CHECK(ibv_query_gid_type(context, 1, 0, &type) == 0 && type == 1 && ibv_query_gid_type(context, 1, 99, &type) == -1);
    CHECK(ibv_query_pkey(context, 1, 0, &key) == 0 && key == 0xffff && ibv_query_pkey(context, 1, 1, &key) == -1);
    CHECK(ibv_get_pkey_index(context, 1, 0xffff) == 0 && ibv_get_pkey_index(context, 1, 1) == -1);
    return 0;
}

// The device itself.
static int itself(struct ibv_context *context)
{
    struct ibv_device_attr attr;
    char buffer[8];

    CHECK(ibv_query_device(context, &attr) == 0 && attr.node_guid != 0);
    // Locally administered, so that it is no vendor's.
    CHECK(attr.vendor_id == 0x025857 && ((attr.vendor_id >> 16) & 2) && attr.vendor_part_id == 1);
    CHECK(ibv_get_device_guid(context->device) == attr.node_guid);
    CHECK(ibv_get_device_index(context->device) == (int)if_nametoindex("dropin0"));
    CHECK(context->device->node_type == IBV_NODE_RNIC && context->device->transport_type == IBV_TRANSPORT_IWARP);
    CHECK(strcmp(ibv_get_sysfs_path(), "/sys") == 0);
    CHECK(ibv_read_sysfs_file("/sys", "fw_ver", buffer, sizeof buffer) == -1);
    return 0;
}

// Words, rates and what fork needs: without any device.
static int words(void)
{
    CHECK(strcmp(ibv_node_type_str(IBV_NODE_RNIC), "iWARP NIC") == 0 && strcmp(ibv_node_type_str(99), "unknown") == 0);
    CHECK(strcmp(ibv_port_state_str(IBV_PORT_ACTIVE), "active") == 0 && ibv_port_state_str(-1));
    CHECK(strcmp(ibv_event_type_str(IBV_EVENT_PORT_ERR), "port error") == 0 && ibv_event_type_str(99));
    CHECK(strcmp(ibv_event_type_str(IBV_EVENT_WQ_FATAL), "WQ fatal") == 0);
    CHECK(strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "success") == 0 && ibv_wc_status_str(99));
    CHECK(strcmp(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded") == 0);
    CHECK(ibv_rate_to_mult(IBV_RATE_100_GBPS) == 40 && mult_to_ibv_rate(40) == IBV_RATE_100_GBPS);
    CHECK(ibv_rate_to_mbps(IBV_RATE_25_GBPS) == 25781 && mbps_to_ibv_rate(25781) == IBV_RATE_25_GBPS);
    CHECK(ibv_rate_to_mult(IBV_RATE_MAX) == -1 && ibv_rate_to_mbps(IBV_RATE_MAX) == -1);
    CHECK(ibv_fork_init() == 0 && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
    CHECK(ibv_dontfork_range(memory, 1) == 0 && ibv_dofork_range(memory, 1) == 0);
    return 0;
}

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
    return tables(context) || itself(context) || words();
}

// Domains under other names, address handles, and what is allowed and means nothing.
static int domains(struct ibv_context *context)
{
    struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
    struct ibv_td_init_attr none = { 0 };
    struct ibv_td *td = ibv_alloc_td(context, &none);
    struct ibv_parent_domain_init_attr attr = { .pd = ibv_alloc_pd(context), .td = td };
    struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
    struct ibv_mr *mr = ibv_reg_mr(parent, memory, sizeof memory, 0);
    struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 64 };
    struct ibv_ah_attr to = { .is_global = 1, .port_num = 1 };
    struct ibv_srq_init_attr_ex shared = { .attr = { .max_wr = 4, .max_sge = 1 }, .comp_mask = IBV_SRQ_INIT_ATTR_PD };
    struct ibv_srq *srq;
    struct ibv_ah *ah;

    CHECK(td && attr.pd && parent && parent != attr.pd && mr && mr->pd == parent);
    CHECK(ibv_advise_mr(parent, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == 0);
    CHECK(ibv_query_rt_values_ex(context, &values) == 0 && values.raw_clock.tv_sec > 0);
    CHECK(!ibv_create_ah(parent, &to) && errno == EINVAL);
    to.grh.dgid.raw[15] = 1;
    ah = ibv_create_ah(parent, &to);
    CHECK(ah && ah->pd == parent && ibv_destroy_ah(ah) == 0 && ibv_destroy_ah(ah) == EINVAL);
    CHECK(!ibv_create_srq_ex(context, &shared) && errno == EINVAL);
    shared.pd = parent;
    srq = ibv_create_srq_ex(context, &shared);
    CHECK(srq && srq->pd == parent && ibv_destroy_srq(srq) == 0);
    CHECK(ibv_dealloc_pd(attr.pd) == EBUSY && ibv_dereg_mr(mr) == 0);
    CHECK(ibv_dealloc_pd(parent) == 0 && ibv_dealloc_pd(attr.pd) == 0);
    CHECK(ibv_dealloc_td(td) == 0 && ibv_dealloc_td(td) == EINVAL);
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
    struct pollfd watched[] = {
        { .fd = channel->fd, .events = POLLIN | POLLOUT }, { .fd = context->async_fd, .events = POLLIN | POLLOUT },
    };

    CHECK(channel && pd && cq && mr && qp && qp->qp_num > 1);
    CHECK(poll(watched, 2, 0) == 0);
    CHECK(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0) == 0);
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
    if (ask(context) || domains(context) || flush(context) || child(context))
        return 1;
    CHECK(ibv_close_device(context) == 0);
    return 0;
}
