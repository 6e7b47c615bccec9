// Which descriptors the library has made and not closed. The linker leads the library's calls here
// (--wrap), and no other's: eventfds, epolls and timers are a program's, too, and nothing else
// distinguishes them. What the C library has as a cancellation point is called directly (calls.c).
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

// Descriptors from this number on are not kept in mind.
enum { MOST = 65536 };

// What a descriptor is. A child has no use for one that HOLDS something of the RNIC, such as a
// socket or a BPF link. One that WAITS holds nothing, and the program may wait for it.
enum { OTHER, WAITS, HOLDS };

static atomic_uchar made[MOST];

long __real_syscall(long number, ...);
int __real_epoll_create1(int flags);
int __real_eventfd(unsigned int value, int flags);
int __real_fcntl(int descriptor, int command, ...);
int __real_fcntl64(int descriptor, int command, ...);
int __real_pipe2(int ends[2], int flags);
int __real_socket(int domain, int type, int protocol);
int __real_socketpair(int domain, int type, int protocol, int pair[2]);
int __real_timerfd_create(int clock, int flags);

static int keep(int descriptor, unsigned char kind)
{
    if (descriptor >= 0 && descriptor < MOST)
        made[descriptor] = kind;
    return descriptor;
}

int __wrap_accept4(int socket, struct sockaddr *address, socklen_t *length, int flags)
{
    return keep(__real_syscall(SYS_accept4, socket, address, length, flags), HOLDS);
}

int __wrap_epoll_create1(int flags) { return keep(__real_epoll_create1(flags), WAITS); }

int __wrap_eventfd(unsigned int value, int flags) { return keep(__real_eventfd(value, flags), WAITS); }

int __wrap_socket(int domain, int type, int protocol) { return keep(__real_socket(domain, type, protocol), HOLDS); }

int __wrap_pipe2(int ends[2], int flags)
{
    int result = __real_pipe2(ends, flags);
    if (result == 0) {
        keep(ends[0], WAITS);
        keep(ends[1], WAITS);
    }
    return result;
}

int __wrap_socketpair(int domain, int type, int protocol, int pair[2])
{
    int result = __real_socketpair(domain, type, protocol, pair);
    if (result == 0) {
        keep(pair[0], WAITS);
        keep(pair[1], WAITS);
    }
    return result;
}

int __wrap_memfd_create(const char *name, unsigned int flags)
{
    return keep(__real_syscall(SYS_memfd_create, name, flags), HOLDS);
}

// A message may bring descriptors.
ssize_t __wrap_recvmsg(int socket, struct msghdr *message, int flags)
{
    ssize_t result = __real_syscall(SYS_recvmsg, socket, message, flags);
    if (result < 0)
        return result;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        size_t bytes = part->cmsg_len - CMSG_LEN(0);
        for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
            int descriptor;
            __builtin_memcpy(&descriptor, CMSG_DATA(part) + at, sizeof(int));
            keep(descriptor, HOLDS);
        }
    }
    return result;
}

int __wrap_timerfd_create(int clock, int flags) { return keep(__real_timerfd_create(clock, flags), WAITS); }

// Takes the argument that follows the last one that is named. Where there is none it is not looked at.
#define TAKE(argument, last)                 \
    void *argument;                          \
    do {                                     \
        va_list more;                        \
        va_start(more, last);                \
        argument = va_arg(more, void *);     \
        va_end(more);                        \
    } while (0)

// A copy is what its original is. Rust's library, where it is built with checks, asks for the flags
// of what it closes, and ends the process if that is closed already. The program may have done
// that.
static int answer(int descriptor, int command, int result)
{
    if (command == F_GETFD && result < 0 && descriptor >= 0 && descriptor < MOST && made[descriptor] != OTHER)
        return 0;
    if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && descriptor >= 0 && descriptor < MOST)
        return keep(result, made[descriptor] == OTHER ? HOLDS : made[descriptor]);
    return result;
}

int __wrap_fcntl(int descriptor, int command, ...)
{
    TAKE(argument, command);
    return answer(descriptor, command, __real_fcntl(descriptor, command, argument));
}

int __wrap_fcntl64(int descriptor, int command, ...)
{
    TAKE(argument, command);
    return answer(descriptor, command, __real_fcntl64(descriptor, command, argument));
}

int __wrap_open(const char *path, int flags, ...)
{
    TAKE(mode, flags);
    return keep(__real_syscall(SYS_openat, AT_FDCWD, path, flags, (mode_t)(uintptr_t)mode), HOLDS);
}

int __wrap_open64(const char *path, int flags, ...)
{
    TAKE(mode, flags);
    return keep(__real_syscall(SYS_openat, AT_FDCWD, path, flags, (mode_t)(uintptr_t)mode), HOLDS);
}

// Whether a command of bpf(2) returns a descriptor.
static int is_making(long command)
{
    switch (command) {
    case BPF_MAP_CREATE:
    case BPF_PROG_LOAD:
    case BPF_OBJ_GET:
    case BPF_PROG_GET_FD_BY_ID:
    case BPF_MAP_GET_FD_BY_ID:
    case BPF_BTF_GET_FD_BY_ID:
    case BPF_LINK_GET_FD_BY_ID:
    case BPF_BTF_LOAD:
    case BPF_LINK_CREATE:
        return 1;
    default:
        return 0;
    }
}

long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list more;

    va_start(more, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(more, long);
    va_end(more);
    long result = __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == SYS_memfd_create || (number == SYS_bpf && is_making(a[0])))
        return keep(result, HOLDS);
    return result;
}

// Another thread may get the number as soon as it is closed, so it is forgotten before.
int __wrap_close(int descriptor)
{
    if (descriptor >= 0 && descriptor < MOST)
        made[descriptor] = OTHER;
    return __real_syscall(SYS_close, descriptor);
}

// In a child: closes what would keep the RNIC's interface, queues and ports from other processes
// after the parent has ended. Async-signal-safe.
static void close_what_holds(void)
{
    for (int descriptor = 0; descriptor < MOST; descriptor++)
        if (made[descriptor] == HOLDS)
            __wrap_close(descriptor);
}

static int is_ours(int descriptor)
{
    return descriptor >= 0 && descriptor < MOST && made[descriptor] != OTHER;
}

/* The Rust part has no constructors and destructors. */
void xwarp_begin_in_child_with(void (*close_what_holds)(void));
void xwarp_tell_what_is_left(int (*is_ours)(int descriptor));

__attribute__((constructor)) static void begin(void)
{
    xwarp_begin_in_child_with(close_what_holds);
}

__attribute__((destructor)) static void leave(void)
{
    xwarp_tell_what_is_left(is_ours);
}
