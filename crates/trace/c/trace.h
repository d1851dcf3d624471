/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the interposer share. It stands between a program and its MPI library
 * (LD_PRELOAD; the profiling interface of MPI): each wrapper calls the library and then adds
 * records to the rank's trace, whose format ../src/format.rs describes.
 *
 * Sources, destinations and tags are written as the program gives them; ranks of communicators are
 * translated when traces are merged.
 */
#ifndef SG_TRACE_H
#define SG_TRACE_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* First byte of a record; 0 ends a trace. The same numbers as in ../src/format.rs. */
enum sg_record {
	SG_COMPUTE = 1,
	SG_COMMUNICATOR = 2,
	SG_SEND = 3,
	SG_RECEIVE = 4,
	SG_ISEND = 5,
	SG_IRECEIVE = 6,
	SG_DONE = 7,
	SG_DONE_RECEIVE = 8,
	SG_PROBE = 9,
	SG_COLLECTIVE = 10,
	SG_UNSUPPORTED = 11,
	SG_END = 12,
};

/* The same numbers as in ../src/format.rs. */
enum sg_collective {
	SG_BARRIER,
	SG_BCAST,
	SG_REDUCE,
	SG_ALLREDUCE,
	SG_ALLGATHER,
	SG_ALLGATHERV,
	SG_GATHER,
	SG_GATHERV,
	SG_SCATTER,
	SG_SCATTERV,
	SG_ALLTOALL,
	SG_ALLTOALLV,
	SG_REDUCE_SCATTER,
	SG_SCAN,
	SG_EXSCAN,
};

/* Number of a communicator that cannot be recorded: one between two groups, or with processes that
 * are not in MPI_COMM_WORLD. */
#define SG_FOREIGN UINT32_MAX

/*
 * Around each call of the library. sg_enter() adds the CPU time since the last call to the
 * computation; true if the call is the program's own, and recorded. A library may call itself.
 */
bool sg_enter(void);
void sg_leave(void);

/* Calls the library and records what it did if it succeeded. */
#define SG_TRACED(call, record)                                                                  \
	do {                                                                                       \
		bool sg_own = sg_enter();                                                          \
		int sg_result = (call);                                                            \
		if (sg_own && sg_result == MPI_SUCCESS) {                                          \
			record;                                                                    \
		}                                                                                  \
		sg_leave();                                                                        \
		return sg_result;                                                                  \
	} while (0)

/* Parameters or arguments without their parentheses. */
#define SG_UNWRAP(...) __VA_ARGS__

/* The current call asked for something that has not happened yet. */
void sg_idle(void);

/* Begins and ends the trace of this rank. */
void sg_begin(void);
void sg_end(void);

/* Adds a record; computation since the last one goes before it. The lock is not held. */
void sg_add(enum sg_record kind, size_t count, const uint64_t *values);

#define SG_ADD(kind, ...)                                                                        \
	sg_add(kind, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[]){__VA_ARGS__})

/* A call that is not recorded, by name. */
void sg_unsupported(const char *name);

/* For tables that several threads use. */
void sg_lock(void);
void sg_unlock(void);

/* Number of a communicator on this rank; a new one is recorded. */
uint32_t sg_communicator(MPI_Comm comm);
void sg_communicators_begin(void);

/* Bytes of so many elements. */
static inline uint64_t sg_bytes(int count, MPI_Datatype type)
{
	int size = 0;

	PMPI_Type_size(type, &size);
	return (uint64_t)count * (uint64_t)size;
}

/* Bytes that a receive or probe has found. */
static inline uint64_t sg_received(const MPI_Status *status)
{
	MPI_Count bytes = 0;

	PMPI_Get_elements_x(status, MPI_BYTE, &bytes);
	return bytes > 0 ? (uint64_t)bytes : 0;
}

/* A request that is not persistent; returns its number. */
uint64_t sg_request_new(MPI_Request request, bool receive);

#endif
