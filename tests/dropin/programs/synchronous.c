// Two MPI ranks send each other synchronously and compare every byte, for short and for long messages.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 1 << 20 };

static unsigned char out[LONGEST], in[LONGEST];

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int bytes = 1; bytes <= LONGEST; bytes *= 32) {
        memset(in, 99, sizeof in);
        for (int at = 0; at < bytes; at++)
            out[at] = (unsigned char)(at * 7 + bytes);
        for (int sender = 0; sender < 2; sender++) {
            if (rank == sender)
                MPI_Ssend(out, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD);
            else
                MPI_Recv(in, bytes, MPI_BYTE, sender, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (memcmp(in, out, bytes) != 0) {
            fprintf(stderr, "rank %d: a message of %d bytes differs\n", rank, bytes);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d has compared all\n", rank);
    MPI_Finalize();
    return 0;
}
