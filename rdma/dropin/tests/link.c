// A program of C on the installed headers: link down and link up are reported as events of the
// port. Prints what was wrong, and returns 1 then.
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

// The next event is this one, and the port is in this state then.
static int happens(struct ibv_context *context, enum ibv_event_type type, enum ibv_port_state state)
{
    struct ibv_async_event event;
    struct ibv_port_attr port;

    CHECK(ibv_get_async_event(context, &event) == 0);
    CHECK(event.event_type == type && event.element.port_num == 1);
    ibv_ack_async_event(&event);
    CHECK(ibv_query_port(context, 1, &port) == 0 && port.state == state);
    return 0;
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]), *second = ibv_open_device(list[0]);
    struct ibv_pd *pd = ibv_alloc_pd(context);

    // Who waits in vain for an event is ended.
    alarm(30);
    CHECK(context && second && pd);
    CHECK(system("ip link set dropin1 down") == 0);
    if (happens(context, IBV_EVENT_PORT_ERR, IBV_PORT_DOWN) || happens(second, IBV_EVENT_PORT_ERR, IBV_PORT_DOWN))
        return 1;
    CHECK(system("ip link set dropin1 up") == 0);
    if (happens(context, IBV_EVENT_PORT_ACTIVE, IBV_PORT_ACTIVE))
        return 1;
    CHECK(ibv_close_device(second) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    ibv_free_device_list(list);
    return 0;
}
