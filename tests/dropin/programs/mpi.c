// Two MPI ranks exchange messages and compare every byte: point to point, collective and one-sided. The first difference ends both.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LARGEST = 4 << 20, BURST = 64, ELEMENTS = 100000 };

static int rank, peer;

static void check(int holds, const char *what, long where)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s differs at %ld\n", rank, what, where);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char pattern(long at, int seed)
{
    return (unsigned char)(at * 7 + at / 251 + seed * 31);
}

static void fill(unsigned char *bytes, long count, int seed)
{
    for (long at = 0; at < count; at++)
        bytes[at] = pattern(at, seed);
}

static void compare(const unsigned char *bytes, long count, int seed, const char *what)
{
    for (long at = 0; at < count; at++)
        check(bytes[at] == pattern(at, seed), what, at);
}

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    check(memory != NULL, "memory", 0);
    return memory;
}

// One way, the other way, and both at once.
static void exchange(int bytes)
{
    unsigned char *out = allocate(bytes), *in = allocate(bytes);
    fill(out, bytes, rank + bytes);
    if (rank == 0) {
        MPI_Send(out, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
        MPI_Recv(in, bytes, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(in, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Ssend(out, bytes, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
    }
    compare(in, bytes, peer + bytes, "a message");
    fill(in, bytes, 99);
    MPI_Sendrecv(out, bytes, MPI_BYTE, peer, 3, in, bytes, MPI_BYTE, peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    compare(in, bytes, peer + bytes, "a message of both ways");
    free(out);
    free(in);
}

static void every_size(void)
{
    for (int bytes = 1; bytes <= LARGEST; bytes *= 2) {
        exchange(bytes);
        exchange(bytes + 1);
        if (bytes > 2)
            exchange(bytes - 1);
    }
}

// Many messages at once.
static void burst(int bytes)
{
    unsigned char *out = allocate((size_t)bytes * BURST), *in = allocate((size_t)bytes * BURST);
    MPI_Request requests[2 * BURST];
    for (int i = 0; i < BURST; i++) {
        fill(out + (long)i * bytes, bytes, i + rank);
        MPI_Irecv(in + (long)i * bytes, bytes, MPI_BYTE, peer, BURST - i, MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = 0; i < BURST; i++)
        MPI_Isend(out + (long)i * bytes, bytes, MPI_BYTE, peer, BURST - i, MPI_COMM_WORLD, &requests[BURST + i]);
    MPI_Waitall(2 * BURST, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < BURST; i++)
        compare(in + (long)i * bytes, bytes, i + peer, "a message of many");
    free(out);
    free(in);
}

static void reductions(int count)
{
    long *out = allocate(2 * count * sizeof *out), *in = allocate(2 * count * sizeof *in);
    for (int i = 0; i < 2 * count; i++)
        out[i] = 3L * i + rank;
    MPI_Allreduce(out, in, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        check(in[i] == 6L * i + 1, "a sum", i);
    MPI_Scan(out, in, count, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        check(in[i] == 3L * i + rank, "a scan", i);
    MPI_Reduce_scatter_block(out, in, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        check(in[i] == 6L * (i + (long)rank * count) + 1, "a scattered sum", i);
    free(out);
    free(in);
}

static void moves(int bytes)
{
    unsigned char *out = allocate(2 * bytes), *in = allocate(2 * bytes);
    for (int root = 0; root < 2; root++) {
        fill(in, bytes, rank == root ? root : 99);
        MPI_Bcast(in, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
        compare(in, bytes, root, "a broadcast");
        fill(out, bytes, 10 + rank);
        MPI_Gather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
        if (rank == root) {
            compare(in, bytes, 10, "a gathered part");
            compare(in + bytes, bytes, 11, "a gathered part");
        }
        fill(out, bytes, 20);
        fill(out + bytes, bytes, 21);
        MPI_Scatter(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
        compare(in, bytes, 20 + rank, "a scattered part");
    }
    fill(out, bytes, 30 + rank);
    MPI_Allgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
    compare(in, bytes, 30, "a part for all");
    compare(in + bytes, bytes, 31, "a part for all");
    fill(out, bytes, 40 + 2 * rank);
    fill(out + bytes, bytes, 41 + 2 * rank);
    MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
    compare(in, bytes, 40 + rank, "a part from all");
    compare(in + bytes, bytes, 42 + rank, "a part from all");
    free(out);
    free(in);
}

static void puts_and_gets(int bytes)
{
    unsigned char *shared = allocate(2 * bytes), *own = allocate(bytes);
    MPI_Win window;
    MPI_Win_create(shared, 2 * bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    fill(own, bytes, 50 + rank);
    fill(shared + bytes, bytes, 60 + rank);
    MPI_Win_fence(0, window);
    MPI_Put(own, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    compare(shared, bytes, 50 + peer, "what was put");
    MPI_Get(own, bytes, MPI_BYTE, peer, bytes, bytes, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    compare(own, bytes, 60 + peer, "what was got");
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, peer, 0, window);
    fill(own, bytes, 70 + rank);
    MPI_Put(own, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, window);
    MPI_Win_unlock(peer, window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    compare(shared, bytes, 70 + peer, "what was put with a lock");
    MPI_Win_unlock(rank, window);
    MPI_Win_free(&window);
    free(shared);
    free(own);
}

// Both ranks add to the memory of rank 0, and then count there.
static void accumulate(void)
{
    long *shared = allocate(ELEMENTS * sizeof *shared), *own = allocate(ELEMENTS * sizeof *own);
    MPI_Win window;
    MPI_Win_create(shared, ELEMENTS * sizeof *shared, sizeof *shared, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    for (int i = 0; i < ELEMENTS; i++)
        own[i] = i + rank;
    MPI_Win_fence(0, window);
    MPI_Accumulate(own, ELEMENTS, MPI_LONG, 0, 0, ELEMENTS, MPI_LONG, MPI_SUM, window);
    MPI_Win_fence(0, window);
    for (int i = 0; rank == 0 && i < ELEMENTS; i++)
        check(shared[i] == 2L * i + 1, "what was accumulated", i);
    MPI_Win_fence(0, window);
    for (int i = 0; i < 100; i++) {
        long one = 1, before;
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 0, MPI_SUM, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    long counted, none = 0;
    MPI_Fetch_and_op(&none, &counted, MPI_LONG, 0, 0, MPI_NO_OP, window);
    MPI_Win_unlock(0, window);
    check(counted == 1 + 200, "the counter", counted);
    MPI_Win_free(&window);
    free(shared);
    free(own);
}

int main(int argc, char **argv)
{
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    check(ranks == 2, "the number of ranks", ranks);
    peer = 1 - rank;
    every_size();
    burst(1);
    burst(20000);
    for (int count = 1; count <= ELEMENTS; count *= 10) {
        reductions(count);
        moves(count);
    }
    for (int bytes = 1; bytes <= 1 << 20; bytes *= 32)
        puts_and_gets(bytes);
    accumulate();
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d of %d has compared all\n", rank, ranks);
    MPI_Finalize();
    return 0;
}
