// orphan HOW CHILD: a program of C with an RNIC, whose child outlives it. HOW it ends: `exit` or
// `kill`. CHILD: `fork`, or `clone` without the handlers of fork. A forked child has nothing of the
// RNIC, and none of its calls works. `orphan again` is the next program on the interface.
#define _GNU_SOURCE
#include "pair.h"
#include <dirent.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PORT = 7471, OUTLIVES = 60 };

static struct pair pair;

// Descriptors and mappings of this process that hold something of an RNIC.
static int held(void)
{
    char path[300], target[256], line[512];
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    MUST(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        count += strncmp(target, "socket:", 7) == 0 || strncmp(target, "anon_inode:bpf", 14) == 0;
    }
    closedir(folder);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "socket:") != NULL;
    fclose(maps);
    return count;
}

static void live_on(int report)
{
    struct ibv_pd *none = ibv_alloc_pd(pair.client.id->verbs);
    char ok = !none && errno == ENODEV && held() == 0;

    MUST(write(report, &ok, 1) == 1);
    for (int descriptor = 0; descriptor < 3; descriptor++)
        close(descriptor);
    sleep(OUTLIVES);
    _exit(0);
}

int main(int argc, char **argv)
{
    int report[2];
    char ok = 0;

    alarm(30);
    listen_at(&pair, "10.99.0.1", PORT);
    connect_pair(&pair, "10.99.0.1", PORT);
    if (argc == 2) {
        end_pair(&pair);
        return 0;
    }
    MUST(argc == 3 && held() > 0 && pipe(report) == 0);
    int is_clone = strcmp(argv[2], "clone") == 0;
    pid_t child = is_clone ? syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();
    if (child == 0 && is_clone) {
        sleep(OUTLIVES);
        _exit(0);
    }
    if (child == 0)
        live_on(report[1]);
    MUST(child > 0);
    MUST(is_clone || (read(report[0], &ok, 1) == 1 && ok));
    // The parent has what it had.
    write_and_wait(&pair.client, &pair.server, 100);
    if (strcmp(argv[1], "kill") == 0)
        kill(getpid(), SIGKILL);
    return 0;
}
