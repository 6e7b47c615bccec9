// A program of C that prints the names of all devices.
#include <infiniband/verbs.h>
#include <unistd.h>

#include "check.h"

int main(void)
{
    int number = -1;

    // Ends the program if listing takes for ever.
    alarm(20);
    struct ibv_device **list = ibv_get_device_list(&number);
    CHECK(list);
    for (int at = 0; at < number; at++)
        printf("device %s\n", ibv_get_device_name(list[at]));
    ibv_free_device_list(list);
    return 0;
}
