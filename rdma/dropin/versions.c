// A function that has two versions: a version map gives each name one only. The other is that of rdma-core 59 and later.
__asm__(".symver query_gid_type_of_59, ibv_query_gid_type@IBVERBS_PRIVATE_59");

int ibv_query_gid_type(void *context, unsigned char port, unsigned int index, unsigned int *type);

int query_gid_type_of_59(void *context, unsigned char port, unsigned int index, unsigned int *type)
{
    return ibv_query_gid_type(context, port, index, type);
}
