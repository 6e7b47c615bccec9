/* orphan serve: a server of one connection, which says when that has ended.
 * orphan connect ADDRESS HOW FILE: a client that is connected, whose forked child lives on until
 * FILE is there. The client ends by HOW: `exit` without closing anything, or `kill`. */
#include "check.h"
#include <signal.h>
#include <unistd.h>

enum { PORT = 7471, PAUSE = 20000 };

static void serve(struct rdma_event_channel *channel) {
    struct sockaddr_storage any = address_of("0.0.0.0", PORT);
    struct rdma_cm_id *listener, *peer;
    CHECK(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&any) == 0);
    CHECK(rdma_listen(listener, 1) == 0);
    peer = take_next(channel, listener);
    accept_peer(channel, peer);
    pass(channel, RDMA_CM_EVENT_DISCONNECTED, peer);
    destroy(peer);
    CHECK(rdma_destroy_id(listener) == 0);
}

int main(int argc, char **argv) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    CHECK(channel != NULL && argc > 1);
    if (argc == 2) {
        serve(channel);
        rdma_destroy_event_channel(channel);
        printf("the peer has ended\n");
        return 0;
    }
    CHECK(argc == 5);
    struct rdma_cm_id *id = begin_to_connect(channel, argv[2], PORT);
    pass(channel, RDMA_CM_EVENT_ESTABLISHED, id);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int descriptor = 0; descriptor < 3; descriptor++)
            close(descriptor);
        while (access(argv[4], F_OK) != 0)
            usleep(PAUSE);
        _exit(0);
    }
    if (strcmp(argv[3], "kill") == 0)
        kill(getpid(), SIGKILL);
    return 0;
}
