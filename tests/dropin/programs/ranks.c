// Any number of ranks: each sends to each, by every kind of transfer, and compares what has come.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 20 };

static int rank, ranks;

static void fail(const char *what)
{
    fprintf(stderr, "rank %d of %d: %s\n", rank, ranks, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// What a rank sends at a place of a message of this length.
static unsigned char byte_of(unsigned sender, unsigned length, unsigned place)
{
    return (unsigned char)(sender * 31 + length * 7 + place * 13);
}

static void ring(unsigned char *out, unsigned char *in)
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;

    for (unsigned length = 1; length <= LARGEST; length *= 4) {
        for (unsigned place = 0; place < length; place++)
            out[place] = byte_of(rank, length, place);
        memset(in, 0, length);
        MPI_Sendrecv(out, length, MPI_BYTE, next, 1, in, length, MPI_BYTE, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (unsigned place = 0; place < length; place++)
            if (in[place] != byte_of(before, length, place))
                fail("a message differs");
    }
}

static void collectives(void)
{
    long own[4096], sums[4096], *all = malloc(sizeof(long) * ranks), *each = malloc(sizeof(long) * ranks);

    for (int i = 0; i < 4096; i++)
        own[i] = (long)i * (rank + 1);
    MPI_Allreduce(own, sums, 4096, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < 4096; i++)
        if (sums[i] != (long)i * ranks * (ranks + 1) / 2)
            fail("a sum differs");
    for (int i = 0; i < ranks; i++)
        each[i] = rank * 1000 + i;
    MPI_Alltoall(each, 1, MPI_LONG, all, 1, MPI_LONG, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; i++)
        if (all[i] != i * 1000 + rank)
            fail("an exchange differs");
    free(all);
    free(each);
}

static void one_sided(void)
{
    long *window, value = rank + 1;
    MPI_Win win;

    MPI_Win_allocate(sizeof(long) * ranks, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
    MPI_Win_fence(0, win);
    for (int other = 0; other < ranks; other++)
        MPI_Put(&value, 1, MPI_LONG, other, rank, 1, MPI_LONG, win);
    MPI_Win_fence(0, win);
    for (int other = 0; other < ranks; other++)
        if (window[other] != other + 1)
            fail("what was put differs");
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    unsigned char *out = malloc(LARGEST), *in = malloc(LARGEST);
    ring(out, in);
    collectives();
    one_sided();
    free(out);
    free(in);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d of %d has compared all\n", rank, ranks);
    MPI_Finalize();
    return 0;
}
