/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that move data in ways that are not recorded: their time is the library's, and notes name
 * them. */
#include "trace.h"

#define NOT_RECORDED(name, P, A)                                                                 \
	int MPI_##name P                                                                           \
	{                                                                                          \
		SG_TRACED(PMPI_##name A, sg_unsupported("MPI_" #name));                            \
	}

/* The same of a call and of its form with a request, which is not recorded either. */
#define NOT_RECORDED_BOTH(name, iname, P, A)                                                     \
	NOT_RECORDED(name, (SG_UNWRAP P), (SG_UNWRAP A))                                           \
	NOT_RECORDED(iname, (SG_UNWRAP P, MPI_Request * request), (SG_UNWRAP A, request))

NOT_RECORDED_BOTH(Neighbor_allgather, Ineighbor_allgather,
		  (const void *data, int count, MPI_Datatype type, void *into, int into_count,
		   MPI_Datatype into_type, MPI_Comm comm),
		  (data, count, type, into, into_count, into_type, comm))
NOT_RECORDED_BOTH(Neighbor_allgatherv, Ineighbor_allgatherv,
		  (const void *data, int count, MPI_Datatype type, void *into, const int counts[],
		   const int places[], MPI_Datatype into_type, MPI_Comm comm),
		  (data, count, type, into, counts, places, into_type, comm))
NOT_RECORDED_BOTH(Neighbor_alltoall, Ineighbor_alltoall,
		  (const void *data, int count, MPI_Datatype type, void *into, int into_count,
		   MPI_Datatype into_type, MPI_Comm comm),
		  (data, count, type, into, into_count, into_type, comm))
NOT_RECORDED_BOTH(Neighbor_alltoallv, Ineighbor_alltoallv,
		  (const void *data, const int counts[], const int places[], MPI_Datatype type,
		   void *into, const int into_counts[], const int into_places[],
		   MPI_Datatype into_type, MPI_Comm comm),
		  (data, counts, places, type, into, into_counts, into_places, into_type, comm))
NOT_RECORDED_BOTH(Neighbor_alltoallw, Ineighbor_alltoallw,
		  (const void *data, const int counts[], const MPI_Aint places[],
		   const MPI_Datatype types[], void *into, const int into_counts[],
		   const MPI_Aint into_places[], const MPI_Datatype into_types[], MPI_Comm comm),
		  (data, counts, places, types, into, into_counts, into_places, into_types, comm))

NOT_RECORDED_BOTH(Put, Rput,
		  (const void *data, int count, MPI_Datatype type, int to, MPI_Aint at, int to_count,
		   MPI_Datatype to_type, MPI_Win window),
		  (data, count, type, to, at, to_count, to_type, window))
NOT_RECORDED_BOTH(Get, Rget,
		  (void *data, int count, MPI_Datatype type, int from, MPI_Aint at, int from_count,
		   MPI_Datatype from_type, MPI_Win window),
		  (data, count, type, from, at, from_count, from_type, window))
NOT_RECORDED_BOTH(Accumulate, Raccumulate,
		  (const void *data, int count, MPI_Datatype type, int to, MPI_Aint at, int to_count,
		   MPI_Datatype to_type, MPI_Op op, MPI_Win window),
		  (data, count, type, to, at, to_count, to_type, op, window))
NOT_RECORDED_BOTH(Get_accumulate, Rget_accumulate,
		  (const void *data, int count, MPI_Datatype type, void *into, int into_count,
		   MPI_Datatype into_type, int to, MPI_Aint at, int to_count,
		   MPI_Datatype to_type, MPI_Op op, MPI_Win window),
		  (data, count, type, into, into_count, into_type, to, at, to_count, to_type, op,
		   window))
NOT_RECORDED(Fetch_and_op,
	     (const void *data, void *into, MPI_Datatype type, int to, MPI_Aint at, MPI_Op op,
	      MPI_Win window),
	     (data, into, type, to, at, op, window))
NOT_RECORDED(Compare_and_swap,
	     (const void *data, const void *compared, void *into, MPI_Datatype type, int to,
	      MPI_Aint at, MPI_Win window),
	     (data, compared, into, type, to, at, window))
NOT_RECORDED(Win_fence, (int assertion, MPI_Win window), (assertion, window))
NOT_RECORDED(Win_lock, (int kind, int rank, int assertion, MPI_Win window),
	     (kind, rank, assertion, window))
NOT_RECORDED(Win_unlock, (int rank, MPI_Win window), (rank, window))
NOT_RECORDED(Win_lock_all, (int assertion, MPI_Win window), (assertion, window))
NOT_RECORDED(Win_unlock_all, (MPI_Win window), (window))
NOT_RECORDED(Win_flush, (int rank, MPI_Win window), (rank, window))
NOT_RECORDED(Win_flush_all, (MPI_Win window), (window))
NOT_RECORDED(Win_flush_local, (int rank, MPI_Win window), (rank, window))
NOT_RECORDED(Win_flush_local_all, (MPI_Win window), (window))
NOT_RECORDED(Win_sync, (MPI_Win window), (window))
NOT_RECORDED(Win_test, (MPI_Win window, int *flag), (window, flag))
NOT_RECORDED(Win_post, (MPI_Group group, int assertion, MPI_Win window),
	     (group, assertion, window))
NOT_RECORDED(Win_start, (MPI_Group group, int assertion, MPI_Win window),
	     (group, assertion, window))
NOT_RECORDED(Win_complete, (MPI_Win window), (window))
NOT_RECORDED(Win_wait, (MPI_Win window), (window))
NOT_RECORDED(Comm_spawn,
	     (const char *command, char *arguments[], int count, MPI_Info info, int root,
	      MPI_Comm comm, MPI_Comm *between, int errors[]),
	     (command, arguments, count, info, root, comm, between, errors))
NOT_RECORDED(Comm_spawn_multiple,
	     (int commands, char *command[], char **arguments[], const int counts[],
	      const MPI_Info infos[], int root, MPI_Comm comm, MPI_Comm *between, int errors[]),
	     (commands, command, arguments, counts, infos, root, comm, between, errors))

/* Its communicator has no members before its request has ended. */
NOT_RECORDED(Comm_idup, (MPI_Comm comm, MPI_Comm *new, MPI_Request *request), (comm, new, request))
