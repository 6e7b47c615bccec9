// Which descriptors the library has made and not closed. The linker leads the library's calls here (--wrap), and no other's: eventfds, epolls and
// timers are a program's, too, and nothing else tells them apart.
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

// Descriptors from this number on are not kept in mind.
enum { MOST = 65536 };

static atomic_bool made[MOST];

int __real_accept4(int socket, struct sockaddr *address, socklen_t *length, int flags);
int __real_close(int descriptor);
int __real_epoll_create1(int flags);
int __real_eventfd(unsigned int value, int flags);
int __real_fcntl(int descriptor, int command, ...);
int __real_fcntl64(int descriptor, int command, ...);
int __real_open(const char *path, int flags, ...);
int __real_open64(const char *path, int flags, ...);
int __real_socket(int domain, int type, int protocol);
int __real_timerfd_create(int clock, int flags);

static int keep(int descriptor)
{
    if (descriptor >= 0 && descriptor < MOST)
        made[descriptor] = 1;
    return descriptor;
}

int __wrap_accept4(int socket, struct sockaddr *address, socklen_t *length, int flags)
{
    return keep(__real_accept4(socket, address, length, flags));
}

int __wrap_epoll_create1(int flags) { return keep(__real_epoll_create1(flags)); }

int __wrap_eventfd(unsigned int value, int flags) { return keep(__real_eventfd(value, flags)); }

int __wrap_socket(int domain, int type, int protocol) { return keep(__real_socket(domain, type, protocol)); }

int __wrap_timerfd_create(int clock, int flags) { return keep(__real_timerfd_create(clock, flags)); }

// Takes the argument that follows the last one that is named. Where there is none it is not looked at.
#define TAKE(argument, last)                 \
    void *argument;                          \
    do {                                     \
        va_list more;                        \
        va_start(more, last);                \
        argument = va_arg(more, void *);     \
        va_end(more);                        \
    } while (0)

static int is_copying(int command) { return command == F_DUPFD || command == F_DUPFD_CLOEXEC; }

int __wrap_fcntl(int descriptor, int command, ...)
{
    TAKE(argument, command);
    int result = __real_fcntl(descriptor, command, argument);
    return is_copying(command) ? keep(result) : result;
}

int __wrap_fcntl64(int descriptor, int command, ...)
{
    TAKE(argument, command);
    int result = __real_fcntl64(descriptor, command, argument);
    return is_copying(command) ? keep(result) : result;
}

int __wrap_open(const char *path, int flags, ...)
{
    TAKE(mode, flags);
    return keep(__real_open(path, flags, (mode_t)(uintptr_t)mode));
}

int __wrap_open64(const char *path, int flags, ...)
{
    TAKE(mode, flags);
    return keep(__real_open64(path, flags, (mode_t)(uintptr_t)mode));
}

// Another thread may get the number as soon as it is closed, so it is forgotten before.
int __wrap_close(int descriptor)
{
    if (descriptor >= 0 && descriptor < MOST)
        made[descriptor] = 0;
    return __real_close(descriptor);
}

static int is_ours(int descriptor)
{
    return descriptor >= 0 && descriptor < MOST && made[descriptor];
}

/* The Rust part has no destructors. */
void xwarp_tell_what_is_left(int (*is_ours)(int descriptor));

__attribute__((destructor)) static void leave(void)
{
    xwarp_tell_what_is_left(is_ours);
}
