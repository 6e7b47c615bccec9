/* Two ranks of MPI: half a round trip of 8 bytes, bandwidth of 64 KiB, or Allreduce of 8 bytes. `tools/bench --programs` compiles and
   runs it. Rank 0 prints the figure (microseconds, or gigabits per second), what was done (round trips, bytes or operations), and
   the processor seconds that both ranks took for it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { TRIPS = 5000, LARGE = 65536, WINDOW = 64, WINDOWS = 100 };

static char buffer[LARGE];

static double processor_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void ping(int rank, int trips)
{
    for (int i = 0; i < trips; i++) {
        if (rank == 0)
            MPI_Send(buffer, 8, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(buffer, 8, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(buffer, 8, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    }
}

static void stream(int rank, int windows)
{
    MPI_Request requests[WINDOW];
    for (int i = 0; i < windows; i++) {
        for (int j = 0; j < WINDOW; j++) {
            if (rank == 0)
                MPI_Isend(buffer, LARGE, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &requests[j]);
            else
                MPI_Irecv(buffer, LARGE, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &requests[j]);
        }
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    }
    ping(rank, 1);
}

static void reduce(int rank, int times)
{
    double mine = rank, sum = 0;
    for (int i = 0; i < times; i++)
        MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (sum != 1) {
        fprintf(stderr, "ranks: Allreduce has made %f of 0 and 1\n", sum);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*work)(int, int);
        int times;
    } tests[] = { { "latency", ping, TRIPS }, { "bandwidth", stream, WINDOWS }, { "allreduce", reduce, TRIPS } };
    int rank, which = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    while (which < 3 && (argc < 2 || strcmp(argv[1], tests[which].name) != 0))
        which++;
    if (which == 3) {
        fprintf(stderr, "ranks: name a test: latency, bandwidth or allreduce\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    tests[which].work(rank, tests[which].times / 10);
    MPI_Barrier(MPI_COMM_WORLD);
    double used = -processor_seconds(), seconds = -MPI_Wtime(), both;
    tests[which].work(rank, tests[which].times);
    seconds += MPI_Wtime();
    used += processor_seconds();
    MPI_Reduce(&used, &both, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    double bytes = (double)WINDOWS * WINDOW * LARGE;
    if (rank == 0 && which == 1)
        printf("%g %.0f %g\n", bytes * 8 / 1e9 / seconds, bytes, both);
    else if (rank == 0)
        printf("%g %d %g\n", seconds / tests[which].times / (which == 0 ? 2 : 1) * 1e6, tests[which].times, both);
    MPI_Finalize();
    return 0;
}
