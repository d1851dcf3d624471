/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace file of a rank, computation between calls, and the begin and end of MPI.
 *
 * The file is mapped into memory: what a rank has recorded is there even if it is killed. The first
 * byte of a record is written last, and a file is longer than its records, so a reader sees whole
 * records and then a zero.
 */
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Part of the file that is mapped; longer than the longest record (an all-to-all of 2^16 ranks). */
#define WINDOW_BYTES (1u << 20)
#define VARINT_BYTES 10
#define HEADER_BYTES 16

/* Less CPU time than this between a call that found nothing and the next call is polling. */
#define POLL_NS 1000

static struct {
	int file; /* -1: nothing is recorded */
	uint8_t *window;
	uint64_t start; /* of the window in the file */
	size_t at;	/* in the window */
	uint64_t compute_ns;
	uint64_t last_ns; /* CPU time at the end of the last call */
	uint64_t own_ns;  /* that two calls in a row are apart, if nothing is between them */
	bool idle;	  /* the last call found nothing */
} trace = {.file = -1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int depth;

void sg_lock(void)
{
	pthread_mutex_lock(&lock);
}

void sg_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Nothing more is recorded; the program goes on. */
static void give_up(const char *what)
{
	fprintf(stderr, "sluicegate: recording ends: %s: %s\n", what, strerror(errno));
	trace.file = -1;
}

static bool map_window(uint64_t start)
{
	void *window = MAP_FAILED;

	/* Space on the disk comes first: a write to a full one would kill the rank. */
	errno = posix_fallocate(trace.file, (off_t)start, WINDOW_BYTES);
	if (errno == 0)
		window = mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, trace.file,
			      (off_t)start);
	if (window == MAP_FAILED) {
		give_up("the trace cannot grow");
		return false;
	}
	if (trace.window)
		munmap(trace.window, WINDOW_BYTES);
	trace.at -= start - trace.start;
	trace.start = start;
	trace.window = window;
	return true;
}

/* Space for so many bytes and a zero behind them. */
static uint8_t *reserve(size_t bytes)
{
	if (trace.at + bytes + 1 > WINDOW_BYTES) {
		uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

		if (!map_window((trace.start + trace.at) / page * page))
			return NULL;
	}
	return trace.window + trace.at;
}

static uint8_t *put(uint8_t *to, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		*to++ = (uint8_t)(value | 0x80);
	*to++ = (uint8_t)value;
	return to;
}

static void add(enum sg_record kind, size_t count, const uint64_t *values)
{
	uint8_t *begin = reserve(1 + (1 + count) * VARINT_BYTES);
	uint8_t *to = begin + 1;

	if (!begin)
		return;
	for (size_t i = 0; i < count; i++)
		to = put(to, values[i]);
	trace.at += (size_t)(to - begin);
	__atomic_store_n(begin, (uint8_t)kind, __ATOMIC_RELEASE);
}

static void add_computation(void)
{
	if (trace.compute_ns > 0 && trace.file >= 0)
		add(SG_COMPUTE, 1, &trace.compute_ns);
	trace.compute_ns = 0;
}

void sg_add(enum sg_record kind, size_t count, const uint64_t *values)
{
	sg_lock();
	add_computation();
	if (trace.file >= 0)
		add(kind, count, values);
	sg_unlock();
}

void sg_unsupported(const char *name)
{
	uint64_t values[65];
	size_t length = strlen(name);

	if (length > 64)
		length = 64;
	values[0] = length;
	for (size_t i = 0; i < length; i++)
		values[1 + i] = (uint8_t)name[i];
	sg_add(SG_UNSUPPORTED, 1 + length, values);
}

bool sg_enter(void)
{
	uint64_t spent;

	if (depth++ > 0 || trace.file < 0)
		return false;
	sg_lock();
	spent = cpu_ns() - trace.last_ns;
	spent -= spent < trace.own_ns ? spent : trace.own_ns;
	if (!trace.idle || spent >= POLL_NS)
		trace.compute_ns += spent;
	trace.idle = false;
	sg_unlock();
	return true;
}

void sg_leave(void)
{
	if (--depth > 0 || trace.file < 0)
		return;
	sg_lock();
	trace.last_ns = cpu_ns();
	sg_unlock();
}

void sg_idle(void)
{
	sg_lock();
	trace.idle = true;
	sg_unlock();
}

/* What the clock itself takes: the least of some. */
static void measure_own(void)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 100; i++) {
		trace.compute_ns = 0;
		sg_leave();
		sg_enter();
		if (trace.compute_ns < least)
			least = trace.compute_ns;
	}
	trace.compute_ns = 0;
	trace.own_ns = least;
}

static void put_u32(uint8_t *to, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(value >> 8 * i);
}

/* A rank whose file is there already belongs to another MPI program of the same command. */
static int create(const char *directory, int rank)
{
	char path[4096];
	int file;

	snprintf(path, sizeof(path), "%s/rank-%d", directory, rank);
	file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (file >= 0 || errno != EEXIST)
		return file;
	snprintf(path, sizeof(path), "%s/again", directory);
	file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (file >= 0)
		close(file);
	errno = EEXIST;
	return -1;
}

void sg_begin(void)
{
	const char *directory = getenv("SLUICEGATE_TRACE");
	int rank = 0, size = 0;

	if (!directory || trace.file >= 0)
		return;
	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	PMPI_Comm_size(MPI_COMM_WORLD, &size);
	trace.file = create(directory, rank);
	if (trace.file < 0) {
		give_up(directory);
		return;
	}
	if (!map_window(0))
		return;
	put_u32(trace.window + 8, (uint32_t)size);
	put_u32(trace.window + 12, (uint32_t)rank);
	memcpy(trace.window, "SGTRACE1", 8);
	trace.at = HEADER_BYTES;
	sg_communicators_begin();
	depth++;
	measure_own();
	sg_leave();
}

void sg_end(void)
{
	uint64_t total = cpu_ns();

	if (trace.file < 0)
		return;
	sg_add(SG_END, 1, &total);
	if (ftruncate(trace.file, (off_t)(trace.start + trace.at)) != 0)
		give_up("the trace cannot be closed");
	trace.file = -1;
}

int MPI_Init(int *argc, char ***argv)
{
	int result = PMPI_Init(argc, argv);

	if (result == MPI_SUCCESS)
		sg_begin();
	return result;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	int result = PMPI_Init_thread(argc, argv, required, provided);

	if (result == MPI_SUCCESS)
		sg_begin();
	return result;
}

int MPI_Finalize(void)
{
	if (sg_enter())
		sg_end();
	depth--;
	return PMPI_Finalize();
}
