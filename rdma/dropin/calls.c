// System calls that the library makes directly. The C library's functions for them are cancellation
// points: a thread of the program that is cancelled in the middle of the engine would unwind
// through it. The linker leads the library's calls here (--wrap), and no other's. Where the library
// waits for events, it calls `readv` and `pause`, which stay what they are.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
    return syscall(SYS_clock_nanosleep, clock, flags, time, left) == 0 ? 0 : errno;
}

int __wrap_connect(int socket, const struct sockaddr *address, socklen_t length)
{
    return syscall(SYS_connect, socket, address, length);
}

int __wrap_epoll_wait(int epoll, struct epoll_event *events, int room, int milliseconds)
{
    return syscall(SYS_epoll_pwait, epoll, events, room, milliseconds, NULL, _NSIG / 8);
}

int __wrap_poll(struct pollfd *descriptors, nfds_t number, int milliseconds)
{
    struct timespec time = { .tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L };

    return syscall(SYS_ppoll, descriptors, number, milliseconds < 0 ? NULL : &time, NULL, _NSIG / 8);
}

ssize_t __wrap_read(int descriptor, void *place, size_t room) { return syscall(SYS_read, descriptor, place, room); }

ssize_t __wrap_recv(int socket, void *place, size_t room, int flags)
{
    return syscall(SYS_recvfrom, socket, place, room, flags, NULL, NULL);
}

ssize_t __wrap_recvfrom(int socket, void *place, size_t room, int flags, struct sockaddr *from, socklen_t *length)
{
    return syscall(SYS_recvfrom, socket, place, room, flags, from, length);
}


ssize_t __wrap_send(int socket, const void *bytes, size_t length, int flags)
{
    return syscall(SYS_sendto, socket, bytes, length, flags, NULL, 0);
}

ssize_t __wrap_sendmsg(int socket, const struct msghdr *message, int flags)
{
    return syscall(SYS_sendmsg, socket, message, flags);
}

ssize_t __wrap_sendto(int socket, const void *bytes, size_t length, int flags, const struct sockaddr *to, socklen_t to_length)
{
    return syscall(SYS_sendto, socket, bytes, length, flags, to, to_length);
}

ssize_t __wrap_write(int descriptor, const void *bytes, size_t length) { return syscall(SYS_write, descriptor, bytes, length); }

ssize_t __wrap_writev(int descriptor, const struct iovec *pieces, int number) { return syscall(SYS_writev, descriptor, pieces, number); }
