/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An MPI program of 8 ranks whose messages are known: crates/cli/tests/trace.rs counts them in what
 * was recorded. Barriers keep its wildcards from messages that are not meant for them: 24 messages
 * each. With the argument `die` rank 1 is killed after five messages; with `wait` they do nothing
 * for an hour; with `others` there are calls that are not recorded, and one message.
 */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ANY MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD

static int rank, size;
static char out[4096], in[8][4096];

/* One message of 12 bytes. Its receive is the first request of rank 0. What waits for a persistent
 * request that is not active ends no other. */
static void inactive(void)
{
	MPI_Request receive, persistent;

	if (rank == 1)
		MPI_Send(out, 12, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
	if (rank != 0)
		return;
	MPI_Irecv(in[0], 12, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &receive);
	MPI_Send_init(out, 12, MPI_CHAR, 1, 3, MPI_COMM_WORLD, &persistent);
	MPI_Wait(&persistent, MPI_STATUS_IGNORE);
	MPI_Wait(&receive, MPI_STATUS_IGNORE);
	MPI_Request_free(&persistent);
}

/* 8 messages of 1000 bytes. */
static void ring(void)
{
	MPI_Request requests[2];

	MPI_Irecv(in[0], 1000, MPI_CHAR, (rank + size - 1) % size, 1, MPI_COMM_WORLD, &requests[0]);
	MPI_Isend(out, 1000, MPI_CHAR, (rank + 1) % size, 1, MPI_COMM_WORLD, &requests[1]);
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

/* 7 messages of 100 to 700 bytes, from any source. */
static void wildcards(void)
{
	MPI_Request requests[3];
	int index;

	if (rank > 0) {
		MPI_Ssend(out, 100 * rank, MPI_CHAR, 0, 10 + rank, MPI_COMM_WORLD);
		return;
	}
	for (int i = 0; i < 4; i++)
		MPI_Recv(in[0], 4096, MPI_CHAR, ANY, MPI_STATUS_IGNORE);
	for (int i = 0; i < 3; i++)
		MPI_Irecv(in[i], 4096, MPI_CHAR, ANY, &requests[i]);
	for (int i = 0; i < 3; i++)
		MPI_Waitany(3, requests, &index, MPI_STATUS_IGNORE);
}

/* Ranks 6, 4, 2, 0 and 7, 5, 3, 1. Rank 6 sends rank 0 64 bytes in the world, then 500 in the half,
 * with one tag; rank 0 takes them the other way round. Rank 7 sends rank 1 500 bytes. In each half
 * an all-reduce of 8 bytes: 8 messages. */
static void halves(void)
{
	MPI_Comm half, copy;
	MPI_Request request;
	double one = 1, sum;
	int place;

	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
	MPI_Comm_dup(half, &copy);
	MPI_Comm_rank(half, &place);
	if (rank == 6)
		MPI_Isend(out, 64, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &request);
	if (place == 0)
		MPI_Send(out, 500, MPI_CHAR, 3, 1, copy);
	if (place == 3)
		MPI_Recv(in[0], 500, MPI_CHAR, 0, 1, copy, MPI_STATUS_IGNORE);
	if (rank == 0)
		MPI_Recv(in[0], 64, MPI_CHAR, 6, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank == 6)
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, half);
	MPI_Comm_free(&copy);
	MPI_Comm_free(&half);
}

/* One message of 300 bytes, found by a probe; one of 20 bytes, tested for. */
static void probe_and_test(void)
{
	MPI_Status status;
	MPI_Request request;
	int done = 0;

	if (rank == 2)
		MPI_Send(out, 300, MPI_CHAR, 1, 30, MPI_COMM_WORLD);
	if (rank == 1) {
		MPI_Probe(ANY, &status);
		MPI_Recv(in[0], 300, MPI_CHAR, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
	}
	if (rank == 7)
		MPI_Send(out, 5, MPI_INT, 3, 31, MPI_COMM_WORLD);
	if (rank == 3) {
		MPI_Irecv(in[0], 5, MPI_INT, 7, 31, MPI_COMM_WORLD, &request);
		while (!done)
			MPI_Test(&request, &done, MPI_STATUS_IGNORE);
	}
}

/* 3 messages of 44 bytes. */
static void persistent(void)
{
	MPI_Request request;

	if (rank == 4)
		MPI_Send_init(out, 44, MPI_CHAR, 5, 40, MPI_COMM_WORLD, &request);
	else if (rank == 5)
		MPI_Recv_init(in[0], 44, MPI_CHAR, 4, 40, MPI_COMM_WORLD, &request);
	else
		return;
	for (int i = 0; i < 3; i++) {
		MPI_Start(&request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	MPI_Request_free(&request);
}

/* 7 messages of 16 bytes; and one of rank 0 to itself. */
static void shift(void)
{
	int to = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
	int from = rank > 0 ? rank - 1 : MPI_PROC_NULL;

	MPI_Sendrecv(out, 16, MPI_CHAR, to, 50, in[0], 16, MPI_CHAR, from, 50, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	if (rank == 0)
		MPI_Sendrecv(out, 4, MPI_CHAR, 0, 51, in[0], 4, MPI_CHAR, 0, 51, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
}

/* Two messages of 24 and 28 bytes that are buffered, taken in another order and by matching
 * probes. */
static void buffered(void)
{
	static char space[2 * MPI_BSEND_OVERHEAD + 64];
	char *old;
	int bytes;
	MPI_Request request;
	MPI_Message message;

	if (rank == 2) {
		MPI_Buffer_attach(space, sizeof(space));
		MPI_Bsend(out, 24, MPI_CHAR, 3, 60, MPI_COMM_WORLD);
		MPI_Ibsend(out, 28, MPI_CHAR, 3, 61, MPI_COMM_WORLD, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		MPI_Buffer_detach(&old, &bytes);
	}
	for (int tag = 61; rank == 3 && tag >= 60; tag--) {
		MPI_Mprobe(2, tag, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
		MPI_Mrecv(in[0], 28, MPI_CHAR, &message, MPI_STATUS_IGNORE);
	}
}

/* 7 + 24 + 24 messages of a broadcast, a barrier and an all-reduce that does not block; then an
 * all-to-all in which rank r sends rank c 10 * ((r + c) % 3) bytes: 38 messages with data; 7 of a
 * gather. */
static void collectives(void)
{
	int counts[8], into[8], places[8], own[8];
	double one = 1, sum;
	MPI_Request request;

	MPI_Bcast(out, 100, MPI_CHAR, 3, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Iallreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	for (int i = 0; i < size; i++) {
		counts[i] = into[i] = 10 * ((rank + i) % 3);
		places[i] = 64 * i;
		own[i] = 10 * i;
	}
	MPI_Alltoallv(out, counts, places, MPI_CHAR, in[0], into, places, MPI_CHAR, MPI_COMM_WORLD);
	MPI_Gatherv(out, 10 * rank, MPI_CHAR, in[0], own, places, MPI_CHAR, 0, MPI_COMM_WORLD);
}

static void compute(double seconds)
{
	clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);

	while (clock() < end)
		;
}

/* Rank 0 sends five messages of 10 bytes to rank 1, which is killed when it has them. */
static void die(void)
{
	for (int i = 0; i < 5 && rank == 0; i++)
		MPI_Send(out, 10, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
	for (int i = 0; i < 5 && rank == 1; i++)
		MPI_Recv(in[0], 10, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank == 1)
		raise(SIGKILL);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Ranks 0 to 6, and rank 7: an all-to-all between both groups, with the counts and types that it
 * needs and no more. Behind them are some that are none. */
static void between_groups(void)
{
	MPI_Comm group, between;
	MPI_Datatype types[8] = {MPI_DATATYPE_NULL};
	int counts[8], places[8], others = rank == 7 ? 7 : 1;

	for (int i = 0; i < others; i++) {
		counts[i] = 4;
		places[i] = 4 * i;
		types[i] = MPI_CHAR;
	}
	for (int i = others; i < 8; i++)
		types[i] = MPI_DATATYPE_NULL;
	MPI_Comm_split(MPI_COMM_WORLD, rank == 7, rank, &group);
	MPI_Intercomm_create(group, 0, MPI_COMM_WORLD, rank == 7 ? 0 : 7, 5, &between);
	MPI_Alltoallw(out, counts, places, types, in[0], counts, places, types, between);
	MPI_Comm_free(&between);
	MPI_Comm_free(&group);
}

/* Of neighbours on a ring. */
static void neighbours(void)
{
	MPI_Comm circle;
	MPI_Request request;
	MPI_Datatype types[2] = {MPI_CHAR, MPI_CHAR};
	MPI_Aint places[2] = {0, 64};
	int counts[2] = {4, 4}, ring = 1;

	MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &ring, 0, &circle);
	MPI_Neighbor_alltoallw(out, counts, places, types, in[0], counts, places, types, circle);
	MPI_Ineighbor_allgather(out, 4, MPI_CHAR, in[0], 4, MPI_CHAR, circle, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Comm_free(&circle);
}

/* One-sided. */
static void windows(void)
{
	static int shared[4];
	MPI_Win window;
	MPI_Request request;
	int one = 1, old, next = (rank + 1) % size;

	MPI_Win_create(shared, sizeof(shared), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
	MPI_Win_lock_all(0, window);
	MPI_Rput(&one, 1, MPI_INT, next, 0, 1, MPI_INT, window, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Fetch_and_op(&one, &old, MPI_INT, next, 1, MPI_SUM, window);
	MPI_Compare_and_swap(&one, &one, &old, MPI_INT, next, 2, window);
	MPI_Get_accumulate(&one, 1, MPI_INT, &old, 1, MPI_INT, next, 3, 1, MPI_INT, MPI_SUM, window);
	MPI_Win_unlock_all(window);
	MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (argc > 1 && strcmp(argv[1], "wait") == 0)
		sleep(3600);
	if (argc > 1 && strcmp(argv[1], "die") == 0)
		die();
	inactive();
	if (argc > 1 && strcmp(argv[1], "others") == 0) {
		between_groups();
		neighbours();
		windows();
		MPI_Finalize();
		return 0;
	}
	ring();
	wildcards();
	MPI_Barrier(MPI_COMM_WORLD);
	halves();
	probe_and_test();
	MPI_Barrier(MPI_COMM_WORLD);
	persistent();
	shift();
	buffered();
	collectives();
	if (rank == 2)
		compute(0.05);
	MPI_Finalize();
	return 0;
}
