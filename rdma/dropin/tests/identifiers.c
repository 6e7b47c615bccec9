// A program of C on the installed headers: identifiers of the connection manager that have no peer.
// Prints what was wrong, and returns 1 then.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static struct sockaddr *address(const char *text, int port)
{
    static struct sockaddr_in of;

    of = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
    inet_pton(AF_INET, text, &of.sin_addr);
    return (struct sockaddr *)&of;
}

static int devices(void)
{
    int number;
    struct ibv_context **first = rdma_get_devices(&number), **second = rdma_get_devices(NULL);

    CHECK(first && number == 1 && first[0] && !first[1]);
    CHECK(strcmp(ibv_get_device_name(first[0]->device), getenv("XWARP_DEV")) == 0);
    CHECK(second && second != first && second[0] == first[0]);
    rdma_free_devices(first);
    rdma_free_devices(second);
    rdma_free_devices(second);
    return 0;
}

static int names(void)
{
    const char *const expected[] = {
        "ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE",
        "CONNECT_ERROR", "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL",
        "MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT",
    };
    for (int event = RDMA_CM_EVENT_ADDR_RESOLVED; event <= RDMA_CM_EVENT_TIMEWAIT_EXIT; event++)
        CHECK(strcmp(rdma_event_str(event) + strlen("RDMA_CM_EVENT_"), expected[event]) == 0);
    CHECK(rdma_event_str(99));
    return 0;
}

static int addresses(void)
{
    struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST }, *info;
    struct sockaddr_in *of;

    MINUS(rdma_getaddrinfo(NULL, NULL, NULL, &info), EINVAL);
    CHECK(rdma_getaddrinfo("10.99.0.2", "1", &(struct rdma_addrinfo){ .ai_flags = 0x10 }, &info) == EAI_BADFLAGS);
    MINUS(rdma_getaddrinfo("10.99.0.2", "1", NULL, NULL), EINVAL);
    CHECK(rdma_getaddrinfo("localhost", "7471", &hints, &info) == EAI_NONAME);
    CHECK(rdma_getaddrinfo("10.99.0.2", "no service", &hints, &info) == EAI_SERVICE);
    CHECK(rdma_getaddrinfo("10.99.0.2", "7471", NULL, &info) == 0);
    of = (struct sockaddr_in *)info->ai_dst_addr;
    CHECK(info->ai_family == AF_INET && info->ai_qp_type == IBV_QPT_RC && info->ai_port_space == RDMA_PS_TCP);
    CHECK(info->ai_dst_len == sizeof *of && of->sin_port == htons(7471) && !info->ai_src_addr && !info->ai_src_len);
    // Without names the hints' own addresses are meant.
    hints = (struct rdma_addrinfo){ .ai_port_space = RDMA_PS_TCP, .ai_src_len = sizeof *of,
                                    .ai_src_addr = address("10.99.0.1", 0), .ai_dst_len = info->ai_dst_len,
                                    .ai_dst_addr = info->ai_dst_addr };
    struct rdma_addrinfo *copied;
    CHECK(rdma_getaddrinfo(NULL, NULL, &hints, &copied) == 0);
    rdma_freeaddrinfo(info);
    CHECK(copied->ai_src_addr != hints.ai_src_addr && copied->ai_dst_len == sizeof *of);
    CHECK(((struct sockaddr_in *)copied->ai_dst_addr)->sin_port == htons(7471));
    rdma_freeaddrinfo(copied);
    hints.ai_src_len = sizeof *of - 1;
    MINUS(rdma_getaddrinfo("10.99.0.2", "7471", &hints, &info), EINVAL);
    hints.ai_src_len = 1;
    MINUS(rdma_getaddrinfo("10.99.0.2", "7471", &hints, &info), EINVAL);
    hints.ai_src_len = 0, hints.ai_dst_len = sizeof *of - 1, hints.ai_dst_addr = address("10.99.0.2", 1);
    MINUS(rdma_getaddrinfo(NULL, NULL, &hints, &info), EINVAL);
    hints = (struct rdma_addrinfo){ .ai_flags = RAI_PASSIVE | RAI_FAMILY, .ai_family = AF_INET6 };
    CHECK(rdma_getaddrinfo(NULL, "7471", &hints, &info) == 0);
    CHECK(info->ai_src_addr->sa_family == AF_INET6 && info->ai_src_len == sizeof(struct sockaddr_in6));
    CHECK(!info->ai_dst_addr);
    rdma_freeaddrinfo(info);
    rdma_freeaddrinfo(info);
    return 0;
}

static int options(struct rdma_cm_id *id)
{
    uint8_t byte = 16, none = 0;
    int yes = 1, no = 0;

    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &none, sizeof none) == 0);
    MINUS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, sizeof byte), ENOSYS);
    MINUS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &yes, sizeof yes), EINVAL);
    MINUS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, sizeof byte), ENOSYS);
    MINUS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &byte, sizeof byte), EINVAL);
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes) == 0);
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &no, sizeof no) == 0);
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes) == 0);
    MINUS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &byte, sizeof byte), EINVAL);
    MINUS(rdma_set_option(id, RDMA_OPTION_ID, 99, &yes, sizeof yes), ENOSYS);
    return 0;
}

static int ports(struct rdma_event_channel *channel)
{
    struct rdma_cm_id *first, *second;
    int port;

    CHECK(rdma_create_id(channel, &first, &port, RDMA_PS_TCP) == 0 && first->context == &port);
    CHECK(rdma_create_id(channel, &second, NULL, RDMA_PS_TCP) == 0);
    if (options(first))
        return 1;
    MINUS(rdma_bind_addr(first, address("192.0.2.1", 0)), EADDRNOTAVAIL);
    CHECK(rdma_bind_addr(first, address("10.99.0.1", 0)) == 0 && first->verbs && first->port_num == 1);
    port = ntohs(rdma_get_src_port(first));
    CHECK(port && ((struct sockaddr_in *)rdma_get_local_addr(first))->sin_port == htons(port));
    MINUS(rdma_bind_addr(first, address("10.99.0.1", 0)), EINVAL);
    MINUS(rdma_bind_addr(second, address("10.99.0.1", port)), EADDRINUSE);
    CHECK(rdma_listen(first, 1) == 0);
    MINUS(rdma_get_request(first, &second), EINVAL);
    CHECK(rdma_destroy_id(first) == 0);
    CHECK(rdma_bind_addr(second, address("10.99.0.1", port)) == 0 && rdma_destroy_id(second) == 0);
    return 0;
}

// Two identifiers share a port if both say so, until one listens alone.
static int shared_port(struct rdma_event_channel *channel)
{
    struct rdma_cm_id *ids[3];
    int port, yes = 1;

    for (int i = 0; i < 3; i++)
        CHECK(rdma_create_id(channel, &ids[i], NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_set_option(ids[0], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes) == 0);
    CHECK(rdma_bind_addr(ids[0], address("10.99.0.1", 0)) == 0);
    port = ntohs(rdma_get_src_port(ids[0]));
    MINUS(rdma_bind_addr(ids[1], address("10.99.0.1", port)), EADDRINUSE);
    CHECK(rdma_set_option(ids[1], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes) == 0);
    CHECK(rdma_bind_addr(ids[1], address("10.99.0.1", port)) == 0);
    CHECK(ntohs(rdma_get_src_port(ids[1])) == port);
    MINUS(rdma_set_option(ids[1], RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes), EINVAL);
    MINUS(rdma_listen(ids[0], 1), EADDRINUSE);
    CHECK(rdma_destroy_id(ids[1]) == 0 && rdma_listen(ids[0], 1) == 0);
    MINUS(rdma_set_option(ids[0], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes), EINVAL);
    CHECK(rdma_set_option(ids[2], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes) == 0);
    MINUS(rdma_bind_addr(ids[2], address("10.99.0.1", port)), EADDRINUSE);
    CHECK(rdma_destroy_id(ids[0]) == 0 && rdma_destroy_id(ids[2]) == 0);
    return 0;
}

// A source port that is named is taken when the address is resolved.
static int source_ports(struct rdma_event_channel *channel)
{
    struct sockaddr_in own = *(struct sockaddr_in *)address("10.99.0.1", 5000), any = own;
    struct rdma_cm_id *first, *second;

    any.sin_addr.s_addr = INADDR_ANY;
    CHECK(rdma_create_id(channel, &first, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_create_id(channel, &second, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(first, (struct sockaddr *)&own, address("10.99.0.2", 7471), 1) == 0);
    CHECK(ntohs(rdma_get_src_port(first)) == 5000);
    MINUS(rdma_resolve_addr(second, (struct sockaddr *)&any, address("10.99.0.2", 7471), 1), EADDRINUSE);
    CHECK(rdma_get_src_port(second) == 0 && rdma_destroy_id(first) == 0);
    CHECK(rdma_resolve_addr(second, (struct sockaddr *)&any, address("10.99.0.2", 7471), 1) == 0);
    own = *(struct sockaddr_in *)rdma_get_local_addr(second);
    CHECK(own.sin_port == htons(5000) && own.sin_addr.s_addr == inet_addr("10.99.0.1"));
    CHECK(rdma_destroy_id(second) == 0);
    return 0;
}

// Resolves with this source; -1 if that has failed. Without one, with the wildcard address that the
// identifier is bound to.
static int resolves(struct rdma_event_channel *channel, struct sockaddr *bound, struct sockaddr *named, const char *source)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(7471), .sin_addr.s_addr = inet_addr("10.99.0.2") };
    struct sockaddr_in *from;
    struct rdma_cm_id *id;
    int done;

    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) || (bound && rdma_bind_addr(id, bound)))
        return 1;
    done = rdma_resolve_addr(id, named, (struct sockaddr *)&to, 1);
    from = (struct sockaddr_in *)rdma_get_local_addr(id);
    if (done == 0 && from->sin_addr.s_addr != inet_addr(source))
        done = 1;
    rdma_destroy_id(id);
    return done;
}

// A source that a program names twice is the same one, and of the destination's family.
static int sources(struct rdma_event_channel *channel)
{
    struct sockaddr_in first = *(struct sockaddr_in *)address("10.99.0.1", 0), second = *(struct sockaddr_in *)address("10.99.0.9", 0);
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(5001) }, other = any;
    struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
    struct sockaddr *a = (struct sockaddr *)&first, *b = (struct sockaddr *)&second, *c = (struct sockaddr *)&six;

    inet_pton(AF_INET6, "fd99::1", &six.sin6_addr);
    other.sin_port = htons(5002);
    CHECK(resolves(channel, NULL, b, "10.99.0.9") == 0 && resolves(channel, a, a, "10.99.0.1") == 0);
    CHECK(resolves(channel, (struct sockaddr *)&any, b, "10.99.0.9") == 0);
    MINUS(resolves(channel, a, b, NULL), EINVAL);
    MINUS(resolves(channel, (struct sockaddr *)&any, (struct sockaddr *)&other, NULL), EINVAL);
    MINUS(resolves(channel, NULL, c, NULL), EINVAL);
    MINUS(resolves(channel, c, NULL, NULL), EINVAL);
    return 0;
}

// An endpoint is of a reliable connection, and nothing is taken for one.
static int endpoints(void)
{
    struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_qp_type = IBV_QPT_UD }, *info;
    struct rdma_cm_id *id;

    for (int passive = 0; passive <= RAI_PASSIVE; passive += RAI_PASSIVE) {
        hints.ai_flags = passive;
        CHECK(rdma_getaddrinfo("10.99.0.1", "7471", &hints, &info) == 0);
        MINUS(rdma_create_ep(&id, info, NULL, NULL), EOPNOTSUPP);
        info->ai_qp_type = IBV_QPT_RC;
        CHECK(rdma_create_ep(&id, info, NULL, NULL) == 0);
        rdma_destroy_ep(id);
        rdma_freeaddrinfo(info);
    }
    return 0;
}

static int resolving(struct rdma_event_channel *channel)
{
    struct rdma_cm_event *event, *none;
    struct rdma_cm_id *id, *own;

    // An address of the own host is as good as any.
    CHECK(rdma_create_id(channel, &own, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(own, NULL, address("10.99.0.1", 7471), 1) == 0 && own->verbs && rdma_destroy_id(own) == 0);
    CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    MINUS(rdma_resolve_addr(id, NULL, address("192.0.2.1", 7471), 1), ENETUNREACH);
    MINUS(rdma_resolve_route(id, 1), EINVAL);
    CHECK(rdma_resolve_addr(id, NULL, address("10.99.0.2", 7471), 1) == 0);
    CHECK(rdma_get_cm_event(channel, &event) == 0);
    CHECK(event->event == RDMA_CM_EVENT_ADDR_RESOLVED && event->id == id && id->verbs);
    MINUS(rdma_get_cm_event(channel, &none), EAGAIN);
    CHECK(rdma_ack_cm_event(event) == 0);
    MINUS(rdma_ack_cm_event(event), EINVAL);
    CHECK(rdma_resolve_route(id, 1) == 0 && rdma_destroy_id(id) == 0);
    // Its event went with it.
    MINUS(rdma_get_cm_event(channel, &none), EAGAIN);
    return 0;
}

// A queue pair and a shared receive queue by the later functions, all of which the endpoint's end
// destroys.
static int with_later_attributes(struct rdma_cm_id *id)
{
    struct ibv_srq_init_attr_ex shared = { .attr = { .max_wr = 4, .max_sge = 1 }, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE };
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND,
        .cap = { .max_send_wr = 4, .max_send_sge = 1 },
    };

    shared.srq_type = IBV_SRQT_XRC;
    MINUS(rdma_create_srq_ex(id, &shared), EOPNOTSUPP);
    shared.srq_type = IBV_SRQT_BASIC;
    CHECK(rdma_create_srq_ex(id, &shared) == 0 && id->srq);
    CHECK(rdma_create_qp_ex(id, &init) == 0 && id->qp->srq == id->srq && ibv_qp_to_qp_ex(id->qp));
    rdma_destroy_ep(id);
    MINUS(rdma_destroy_id(id), EINVAL);
    return 0;
}

static int queue_pairs(void)
{
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
    struct rdma_cm_id *id;
    int mask;

    CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
    MINUS(rdma_create_qp(id, NULL, &init), EINVAL);
    CHECK(rdma_resolve_addr(id, NULL, address("10.99.0.2", 7471), 1) == 0 && rdma_resolve_route(id, 1) == 0);
    CHECK(id->event && id->event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
    CHECK(rdma_init_qp_attr(id, &attr, &mask) == 0 && (mask & IBV_QP_STATE) && (mask & IBV_QP_PORT));
    CHECK(rdma_create_qp(id, NULL, &init) == 0 && id->qp && id->pd && id->send_cq && id->recv_cq);
    CHECK(id->qp->state == IBV_QPS_INIT && init.send_cq == id->send_cq);
    MINUS(rdma_create_qp(id, NULL, &init), EINVAL);
    rdma_destroy_qp(id);
    CHECK(!id->qp && !id->send_cq && !id->recv_cq && !id->send_cq_channel);
    CHECK(rdma_create_srq(id, NULL, &shared) == 0 && id->srq);
    MINUS(rdma_create_srq(id, NULL, &shared), EINVAL);
    rdma_destroy_srq(id);
    CHECK(!id->srq);
    return with_later_attributes(id);
}

// A process whose RNIC is open has children that cannot use the library.
static int is_dead_in_a_child(struct rdma_event_channel *channel)
{
    struct rdma_cm_id *id;
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0)
        _exit(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != -1 || errno != ENODEV || rdma_get_devices(NULL));
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}

static int all(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();

    CHECK(channel && fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    if (devices() || names() || addresses() || ports(channel) || shared_port(channel) || source_ports(channel))
        return 1;
    if (sources(channel) || endpoints() || resolving(channel) || queue_pairs())
        return 1;
    if (is_dead_in_a_child(channel))
        return 1;
    rdma_destroy_event_channel(channel);
    return 0;
}

// A child that is the first to open a device can use it, and so can its parent afterwards.
int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    int status;
    pid_t pid = fork();

    CHECK(list && list[0] && pid >= 0);
    if (pid == 0)
        exit(all());
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return all();
}
