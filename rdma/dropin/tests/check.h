// Checks of the programs of C: what is not so is printed with its line, and ends the function with
// 1.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CHECK(what)                                                                  \
    do {                                                                             \
        errno = 0;                                                                   \
        if (!(what)) {                                                               \
            printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno));           \
            return 1;                                                                \
        }                                                                            \
    } while (0)

// A function that sets errno and returns a null pointer, or one that returns -1.
#define NONE(call, number) CHECK((call) == NULL && errno == (number))
#define MINUS(call, number) CHECK((call) == -1 && errno == (number))
