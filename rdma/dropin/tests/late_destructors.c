// A program of C that destroys its objects when the library has closed the RNIC at the exit, as
// destructors of static objects in C++ do. Each object can be destroyed, and is counted no longer.
#include "pair.h"
#include <unistd.h>

enum { PORT = 7471 };

static struct pair pair;
static struct ibv_pd *pd;
static struct ibv_srq *srq;
static struct ibv_mw *mw;

static void must_be(const char *what, int returned, int expected)
{
    if (returned != expected) {
        fprintf(stderr, "%s: %d instead of %d\n", what, returned, expected);
        _exit(1);
    }
}

static void destroy_late(void)
{
    struct ibv_wc wc;

    must_be("poll", ibv_poll_cq(pair.client.cq, 1, &wc), -1);
    for (struct end *end = &pair.client; end <= &pair.server; end++) {
        must_be("destroy QP", ibv_destroy_qp(end->id->qp), 0);
        must_be("deregister", ibv_dereg_mr(end->mr), 0);
        must_be("destroy CQ", ibv_destroy_cq(end->cq), 0);
        must_be("destroy identifier", rdma_destroy_id(end->id), 0);
    }
    must_be("destroy listener", rdma_destroy_id(pair.listener), 0);
    must_be("deallocate window", ibv_dealloc_mw(mw), 0);
    must_be("destroy SRQ", ibv_destroy_srq(srq), 0);
    must_be("deallocate domain", ibv_dealloc_pd(pd), 0);
    rdma_destroy_event_channel(pair.channel);
}

int main(void)
{
    struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };

    MUST(atexit(destroy_late) == 0);
    listen_at(&pair, "10.99.0.1", PORT);
    connect_pair(&pair, "10.99.0.1", PORT);
    MUST(pd = ibv_alloc_pd(pair.client.id->verbs));
    MUST((srq = ibv_create_srq(pd, &attr)) && (mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1)));
    return 0;
}
