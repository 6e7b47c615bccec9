// small_stack KIB: a program of C whose thread has a stack of KIB. It opens an RNIC, connects, and
// closes all. Prints what it has used.
#define _GNU_SOURCE
#include "pair.h"
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PORT = 7471, GUARD = 4096, FRESH = 0xa5 };

static struct pair pair;
static int moves_data;

static void *run(void *ignored)
{
    listen_at(&pair, "10.99.0.1", PORT);
    connect_pair(&pair, "10.99.0.1", PORT);
    if (moves_data)
        for (int round = 0; round < 20; round++)
            write_and_wait(&pair.client, &pair.server, 100);
    end_pair(&pair);
    return ignored;
}

int main(int argc, char **argv)
{
    size_t bytes = strtoul(argv[1], NULL, 10) * 1024, untouched = 0;
    pthread_attr_t attributes;
    pthread_t thread;

    alarm(60);
    moves_data = argc > 2;
    char *memory = mmap(NULL, GUARD + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED && mprotect(memory, GUARD, PROT_NONE) == 0);
    unsigned char *stack = (unsigned char *)memory + GUARD;
    memset(stack, FRESH, bytes);
    MUST(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, bytes) == 0);
    MUST(pthread_create(&thread, &attributes, run, NULL) == 0 && pthread_join(thread, NULL) == 0);
    while (untouched < bytes && stack[untouched] == FRESH)
        untouched++;
    printf("%zu KiB of stack used\n", (bytes - untouched) / 1024);
    return 0;
}
