// closed WHAT: a program of C that closes descriptors which it has not opened. WHAT: `all` of them,
// as daemons do, or the `inner` ones that it does not know of. The RNIC has failed then: what is
// posted fails, the device's event comes if there is a way, and exit() returns.
#define _GNU_SOURCE
#include "pair.h"
#include <fcntl.h>
#include <unistd.h>

enum { PORT = 7471 };

static struct pair pair;

// All but two, at once: a thread that opens one meanwhile, as getifaddrs() does, would have it
// closed under it.
static void close_inner(unsigned first, unsigned second)
{
    unsigned low = first < second ? first : second, high = first < second ? second : first;

    MUST(close_range(high + 1, ~0U, 0) == 0);
    MUST(low + 1 == high || close_range(low + 1, high - 1, 0) == 0);
    MUST(low == 3 || close_range(3, low - 1, 0) == 0);
}

static void expect_fatal(struct ibv_context *context)
{
    struct ibv_async_event event;

    do {
        MUST(ibv_get_async_event(context, &event) == 0);
        ibv_ack_async_event(&event);
    } while (event.event_type != IBV_EVENT_DEVICE_FATAL);
}

int main(int argc, char **argv)
{
    struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
    int failed = 0;

    // Ends the program if nothing fails, or if the exit does not return.
    alarm(30);
    listen_at(&pair, "10.99.0.1", PORT);
    connect_pair(&pair, "10.99.0.1", PORT);
    write_and_wait(&pair.client, &pair.server, 100);
    struct ibv_context *context = pair.client.id->verbs;
    int is_inner = argc > 1 && strcmp(argv[1], "inner") == 0;
    if (is_inner)
        close_inner(context->async_fd, pair.channel->fd);
    else
        MUST(close_range(3, ~0U, 0) == 0);
    while (!failed && wc.status == IBV_WC_SUCCESS) {
        failed = post_write(&pair.client, &pair.server, 100);
        while (ibv_poll_cq(pair.client.cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS)
            ;
        usleep(1000);
    }
    if (is_inner)
        expect_fatal(context);
    printf("it has failed\n");
    return 0;
}
