// A program of C on the installed headers: opens and closes an RNIC again and again, with an object
// of each kind. The process has as many descriptors afterwards as before. Prints what was wrong,
// and returns 1 then.
#include <dirent.h>
#include <infiniband/verbs.h>

#include "check.h"

enum { ROUNDS = 5 };

static char memory[4096];

static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static int open_and_close(struct ibv_device *device)
{
    struct ibv_context *context = ibv_open_device(device);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, channel, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_send_sge = 1, .max_recv_wr = 4, .max_recv_sge = 1 },
    };
    struct ibv_qp *own = ibv_create_qp(pd, &init), *sharing;

    init.srq = srq;
    sharing = ibv_create_qp(pd, &init);
    CHECK(pd && channel && cq && mr && mw && srq && own && sharing);
    CHECK(ibv_destroy_qp(sharing) == 0 && ibv_destroy_qp(own) == 0 && ibv_destroy_srq(srq) == 0);
    CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mr) == 0);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    return 0;
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    int before = 0, failed = 0;

    for (int round = 0; round < ROUNDS && !failed; round++) {
        failed = open_and_close(list[0]);
        // What is opened once and stays, as for the source of randomness, is open after the first
        // round.
        if (round == 0)
            before = descriptors();
    }
    ibv_free_device_list(list);
    if (!failed)
        CHECK(descriptors() == before);
    return failed;
}
