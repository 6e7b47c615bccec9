// Prints how many RDMA devices it finds; none is a failure.
#include <infiniband/verbs.h>
#include <stdio.h>

int main(void)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    printf("%d devices\n", count);
    if (list)
        ibv_free_device_list(list);
    return count == 0;
}
