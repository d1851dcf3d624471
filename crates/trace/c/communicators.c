/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators have numbers on each rank, in the order in which they were made. An attribute keeps
 * the number, so that it goes with the communicator. Ranks agree on which is which when traces are
 * merged: the n-th communicator of the same members is the same for all of them.
 */
#include "trace.h"

#include <stdlib.h>

static int keyval = MPI_KEYVAL_INVALID;
static uint32_t numbers;

/* Its members as ranks of MPI_COMM_WORLD, behind two values that are left free; NULL if there is
 * none. */
static uint64_t *members_of(MPI_Comm comm, int size)
{
	uint64_t *values = malloc(sizeof(*values) * (size_t)(size + 2));
	int *own = malloc(sizeof(*own) * (size_t)size * 2);
	MPI_Group group = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
	bool known = values && own;

	if (known) {
		PMPI_Comm_group(comm, &group);
		PMPI_Comm_group(MPI_COMM_WORLD, &world);
		for (int i = 0; i < size; i++)
			own[i] = i;
		PMPI_Group_translate_ranks(group, size, own, world, own + size);
		for (int i = 0; i < size; i++) {
			known = known && own[size + i] != MPI_UNDEFINED;
			values[2 + i] = (uint64_t)own[size + i];
		}
		PMPI_Group_free(&group);
		PMPI_Group_free(&world);
	}
	free(own);
	if (known)
		return values;
	free(values);
	return NULL;
}

static uint32_t learn(MPI_Comm comm)
{
	uint32_t number = SG_FOREIGN;
	uint64_t *values = NULL;
	int between = 0, size = 0;

	PMPI_Comm_test_inter(comm, &between);
	PMPI_Comm_size(comm, &size);
	if (!between)
		values = members_of(comm, size);
	if (values) {
		sg_lock();
		number = numbers++;
		sg_unlock();
		values[0] = number;
		values[1] = (uint64_t)size;
		sg_add(SG_COMMUNICATOR, (size_t)size + 2, values);
		free(values);
	}
	PMPI_Comm_set_attr(comm, keyval, (void *)((uintptr_t)number + 1));
	return number;
}

uint32_t sg_communicator(MPI_Comm comm)
{
	void *value = NULL;
	int known = 0;

	PMPI_Comm_get_attr(comm, keyval, &value, &known);
	if (known)
		return (uint32_t)((uintptr_t)value - 1);
	return learn(comm);
}

void sg_communicators_begin(void)
{
	PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
	learn(MPI_COMM_WORLD);
	learn(MPI_COMM_SELF);
}

static void made(const MPI_Comm *comm)
{
	if (*comm != MPI_COMM_NULL)
		sg_communicator(*comm);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *new)
{
	SG_TRACED(PMPI_Comm_dup(comm, new), made(new));
}

int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *new)
{
	SG_TRACED(PMPI_Comm_dup_with_info(comm, info, new), made(new));
}

int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm *new)
{
	SG_TRACED(PMPI_Comm_create(comm, group, new), made(new));
}

int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *new)
{
	SG_TRACED(PMPI_Comm_create_group(comm, group, tag, new), made(new));
}

int MPI_Comm_split(MPI_Comm comm, int colour, int key, MPI_Comm *new)
{
	SG_TRACED(PMPI_Comm_split(comm, colour, key, new), made(new));
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *new)
{
	SG_TRACED(PMPI_Comm_split_type(comm, type, key, info, new), made(new));
}

int MPI_Comm_free(MPI_Comm *comm)
{
	SG_TRACED(PMPI_Comm_free(comm), (void)comm);
}

int MPI_Intercomm_merge(MPI_Comm between, int high, MPI_Comm *new)
{
	SG_TRACED(PMPI_Intercomm_merge(between, high, new), made(new));
}

int MPI_Cart_create(MPI_Comm comm, int dimensions, const int sizes[], const int periods[],
		    int reorder, MPI_Comm *new)
{
	SG_TRACED(PMPI_Cart_create(comm, dimensions, sizes, periods, reorder, new), made(new));
}

int MPI_Cart_sub(MPI_Comm comm, const int remain[], MPI_Comm *new)
{
	SG_TRACED(PMPI_Cart_sub(comm, remain, new), made(new));
}

int MPI_Graph_create(MPI_Comm comm, int nodes, const int index[], const int edges[], int reorder,
		     MPI_Comm *new)
{
	SG_TRACED(PMPI_Graph_create(comm, nodes, index, edges, reorder, new), made(new));
}

int MPI_Dist_graph_create(MPI_Comm comm, int n, const int nodes[], const int degrees[],
			  const int targets[], const int weights[], MPI_Info info, int reorder,
			  MPI_Comm *new)
{
	SG_TRACED(PMPI_Dist_graph_create(comm, n, nodes, degrees, targets, weights, info, reorder,
					 new),
		  made(new));
}

int MPI_Dist_graph_create_adjacent(MPI_Comm comm, int indegree, const int sources[],
				   const int in_weights[], int outdegree, const int targets[],
				   const int out_weights[], MPI_Info info, int reorder,
				   MPI_Comm *new)
{
	SG_TRACED(PMPI_Dist_graph_create_adjacent(comm, indegree, sources, in_weights, outdegree,
						  targets, out_weights, info, reorder, new),
		  made(new));
}
