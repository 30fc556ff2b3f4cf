// Ranks of MPI send to each other in a ring, reduce, and add to a window. With an argument each
// looks whether its HCA has sent packets.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Messages that go at once, and some that are agreed on first.
static const int SIZES[] = {1, 64, 4096, 65536, 1 << 20};
enum { ROUNDS = 10 };

static void fail(int rank, const char* what) {
  printf("rank %d: %s\n", rank, what);
  fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static void send_around(int rank, int ranks, int bytes) {
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  char *out = malloc(bytes), *in = malloc(bytes);
  for (int round = 0; round < ROUNDS; round++) {
    memset(out, rank + round, bytes);
    memset(in, 0xee, bytes);
    MPI_Sendrecv(out, bytes, MPI_BYTE, next, round, in, bytes, MPI_BYTE, before, round,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < bytes; i++)
      if (in[i] != (char)(before + round)) fail(rank, "a byte of a message is wrong");
  }
  free(out);
  free(in);
}

static void add_up(int rank, int ranks) {
  const long mine = rank + 1, expected = (long)ranks * (ranks + 1) / 2;
  long sum = 0, *counter;
  MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (sum != expected) fail(rank, "the sum of a reduction is wrong");
  MPI_Win window;
  MPI_Win_allocate(sizeof *counter, sizeof *counter, MPI_INFO_NULL, MPI_COMM_WORLD, &counter,
                   &window);
  *counter = 0;
  MPI_Win_fence(0, window);
  MPI_Accumulate(&mine, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, window);
  MPI_Win_fence(0, window);
  if (rank == 0 && *counter != expected) fail(rank, "the sum in a window is wrong");
  MPI_Win_free(&window);
}

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) send_around(rank, ranks, SIZES[i]);
  add_up(rank, ranks);
  if (count > 1) {
    FILE* file = fopen("/sys/class/infiniband/mlx5_0/ports/1/hw_counters/tx_packets", "r");
    long packets = 0;
    if (file == NULL || fscanf(file, "%ld", &packets) != 1 || packets < ROUNDS)
      fail(rank, "the HCA has sent nothing");
    fclose(file);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks: all is as it should be\n", ranks);
  MPI_Finalize();
  return 0;
}
