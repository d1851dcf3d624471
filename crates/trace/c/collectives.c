/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collective operations, as calls: which messages they are made of is decided when GOAL is written.
 * Each member records what it contributes (or gets, where the root contributes).
 */
#include "trace.h"

#include <stdlib.h>

static void collective_call(enum sg_collective what, MPI_Comm comm, int root, size_t count,
			    const uint64_t *bytes, const MPI_Request *request)
{
	uint32_t number = sg_communicator(comm);
	uint64_t near[16], *values = near;

	if (count + 5 > sizeof(near) / sizeof(near[0]))
		values = malloc((count + 5) * sizeof(*values));
	if (!values)
		return;
	values[0] = what;
	values[1] = number;
	values[2] = request ? sg_request_new(*request, false) + 1 : 0;
	values[3] = (uint64_t)root;
	values[4] = count;
	for (size_t i = 0; i < count; i++)
		values[5 + i] = bytes[i];
	sg_add(SG_COLLECTIVE, count + 5, values);
	if (values != near)
		free(values);
}

static void call(enum sg_collective what, MPI_Comm comm, int root, uint64_t bytes,
		 const MPI_Request *request)
{
	collective_call(what, comm, root, 1, &bytes, request);
}

static int rank_in(MPI_Comm comm)
{
	int rank = 0;

	PMPI_Comm_rank(comm, &rank);
	return rank;
}

static int size_of(MPI_Comm comm)
{
	int size = 0;

	PMPI_Comm_size(comm, &size);
	return size;
}

/* Whether a collective can be recorded. Asked first: between two groups counts and types are those
 * of the other group's members, and a root need not be a member. */
static bool within(MPI_Comm comm)
{
	bool is_known = sg_communicator(comm) != SG_FOREIGN;

	if (!is_known)
		sg_unsupported("a collective over an intercommunicator");
	return is_known;
}

/* What a member gives: where it gives what is in its receive buffer, that says how much it is. */
static uint64_t given(const void *data, int count, MPI_Datatype type, int into, MPI_Datatype in)
{
	return data == MPI_IN_PLACE ? sg_bytes(into, in) : sg_bytes(count, type);
}

/* As given(), where only the root has a receive buffer, and it sends nothing to itself. */
static uint64_t given_to_root(const void *data, int count, MPI_Datatype type)
{
	return data == MPI_IN_PLACE ? 0 : sg_bytes(count, type);
}

/* Bytes for each member. `types` is one for all, or one for each of them. */
static void vector(enum sg_collective what, MPI_Comm comm, const int counts[],
		   const MPI_Datatype *types, bool each, const MPI_Request *request)
{
	int size = size_of(comm);
	uint64_t *bytes = malloc(sizeof(*bytes) * (size_t)size);

	if (!bytes)
		return;
	for (int i = 0; i < size; i++)
		bytes[i] = sg_bytes(counts[i], types[each ? i : 0]);
	collective_call(what, comm, 0, (size_t)size, bytes, request);
	free(bytes);
}

/* The blocking call and the one with a request. P and A are parameters and arguments. */
#define BOTH(name, iname, P, A, record)                                                          \
	int MPI_##name(SG_UNWRAP P)                                                              \
	{                                                                                        \
		const MPI_Request *request = NULL;                                               \
		(void)request;                                                                   \
		SG_TRACED(PMPI_##name(SG_UNWRAP A), if (within(comm)) record);                   \
	}                                                                                        \
	int MPI_##iname(SG_UNWRAP P, MPI_Request *request)                                       \
	{                                                                                        \
		SG_TRACED(PMPI_##iname(SG_UNWRAP A, request), if (within(comm)) record);         \
	}

BOTH(Barrier, Ibarrier, (MPI_Comm comm), (comm), call(SG_BARRIER, comm, 0, 0, request))

BOTH(Bcast, Ibcast, (void *data, int count, MPI_Datatype type, int root, MPI_Comm comm),
     (data, count, type, root, comm), call(SG_BCAST, comm, root, sg_bytes(count, type), request))

BOTH(Reduce, Ireduce,
     (const void *data, void *into, int count, MPI_Datatype type, MPI_Op op, int root,
      MPI_Comm comm),
     (data, into, count, type, op, root, comm),
     call(SG_REDUCE, comm, root, sg_bytes(count, type), request))

BOTH(Allreduce, Iallreduce,
     (const void *data, void *into, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
     (data, into, count, type, op, comm),
     call(SG_ALLREDUCE, comm, 0, sg_bytes(count, type), request))

BOTH(Scan, Iscan,
     (const void *data, void *into, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
     (data, into, count, type, op, comm), call(SG_SCAN, comm, 0, sg_bytes(count, type), request))

BOTH(Exscan, Iexscan,
     (const void *data, void *into, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
     (data, into, count, type, op, comm), call(SG_EXSCAN, comm, 0, sg_bytes(count, type), request))

BOTH(Allgather, Iallgather,
     (const void *data, int count, MPI_Datatype type, void *into, int into_count,
      MPI_Datatype into_type, MPI_Comm comm),
     (data, count, type, into, into_count, into_type, comm),
     call(SG_ALLGATHER, comm, 0, given(data, count, type, into_count, into_type), request))

BOTH(Allgatherv, Iallgatherv,
     (const void *data, int count, MPI_Datatype type, void *into, const int counts[],
      const int places[], MPI_Datatype into_type, MPI_Comm comm),
     (data, count, type, into, counts, places, into_type, comm),
     call(SG_ALLGATHERV, comm, 0, given(data, count, type, counts[rank_in(comm)], into_type),
	  request))

BOTH(Gather, Igather,
     (const void *data, int count, MPI_Datatype type, void *into, int into_count,
      MPI_Datatype into_type, int root, MPI_Comm comm),
     (data, count, type, into, into_count, into_type, root, comm),
     call(SG_GATHER, comm, root, given_to_root(data, count, type), request))

BOTH(Gatherv, Igatherv,
     (const void *data, int count, MPI_Datatype type, void *into, const int counts[],
      const int places[], MPI_Datatype into_type, int root, MPI_Comm comm),
     (data, count, type, into, counts, places, into_type, root, comm),
     call(SG_GATHERV, comm, root, given_to_root(data, count, type), request))

BOTH(Scatter, Iscatter,
     (const void *data, int count, MPI_Datatype type, void *into, int into_count,
      MPI_Datatype into_type, int root, MPI_Comm comm),
     (data, count, type, into, into_count, into_type, root, comm),
     call(SG_SCATTER, comm, root, given_to_root(into, into_count, into_type), request))

BOTH(Scatterv, Iscatterv,
     (const void *data, const int counts[], const int places[], MPI_Datatype type, void *into,
      int into_count, MPI_Datatype into_type, int root, MPI_Comm comm),
     (data, counts, places, type, into, into_count, into_type, root, comm),
     call(SG_SCATTERV, comm, root, given_to_root(into, into_count, into_type), request))

BOTH(Alltoall, Ialltoall,
     (const void *data, int count, MPI_Datatype type, void *into, int into_count,
      MPI_Datatype into_type, MPI_Comm comm),
     (data, count, type, into, into_count, into_type, comm),
     call(SG_ALLTOALL, comm, 0, given(data, count, type, into_count, into_type), request))

BOTH(Alltoallv, Ialltoallv,
     (const void *data, const int counts[], const int places[], MPI_Datatype type, void *into,
      const int into_counts[], const int into_places[], MPI_Datatype into_type, MPI_Comm comm),
     (data, counts, places, type, into, into_counts, into_places, into_type, comm),
     data == MPI_IN_PLACE ? vector(SG_ALLTOALLV, comm, into_counts, &into_type, false, request)
			  : vector(SG_ALLTOALLV, comm, counts, &type, false, request))

BOTH(Alltoallw, Ialltoallw,
     (const void *data, const int counts[], const int places[], const MPI_Datatype types[],
      void *into, const int into_counts[], const int into_places[],
      const MPI_Datatype into_types[], MPI_Comm comm),
     (data, counts, places, types, into, into_counts, into_places, into_types, comm),
     data == MPI_IN_PLACE ? vector(SG_ALLTOALLV, comm, into_counts, into_types, true, request)
			  : vector(SG_ALLTOALLV, comm, counts, types, true, request))

BOTH(Reduce_scatter, Ireduce_scatter,
     (const void *data, void *into, const int counts[], MPI_Datatype type, MPI_Op op,
      MPI_Comm comm),
     (data, into, counts, type, op, comm),
     call(SG_REDUCE_SCATTER, comm, 0, sg_bytes(counts[rank_in(comm)], type), request))

BOTH(Reduce_scatter_block, Ireduce_scatter_block,
     (const void *data, void *into, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
     (data, into, count, type, op, comm),
     call(SG_REDUCE_SCATTER, comm, 0, sg_bytes(count, type), request))
