/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks, and the requests that stand for them. */
#include "trace.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096u
#define REQUESTS_NEAR 64

/*
 * A request that has not ended. Several may have one handle: a library gives the same for all sends
 * that have ended at once. Then the oldest is meant.
 */
struct request {
	struct request *next;
	uint64_t handle;
	uint64_t number;
	bool receive;
	bool persistent;
	bool wild; /* from any source or tag */
	uint32_t comm;
	int peer;
	int tag;
	uint64_t bytes;
};

static struct request *buckets[BUCKETS];
/* 0 is the number of a persistent request that is not active. */
static uint64_t numbers = 1;

static uint64_t handle_of(MPI_Request request)
{
	uint64_t handle = 0;

	memcpy(&handle, &request, sizeof(request) < sizeof(handle) ? sizeof(request) : sizeof(handle));
	return handle;
}

static struct request **place_of(uint64_t handle)
{
	struct request **place = &buckets[(handle * 0x9e3779b97f4a7c15u) >> 52];

	while (*place && (*place)->handle != handle)
		place = &(*place)->next;
	return place;
}

static void remember(struct request request)
{
	struct request *copy = malloc(sizeof(*copy));
	struct request **place;

	if (!copy)
		return;
	*copy = request;
	copy->next = NULL;
	sg_lock();
	place = &buckets[(request.handle * 0x9e3779b97f4a7c15u) >> 52];
	while (*place)
		place = &(*place)->next;
	*place = copy;
	sg_unlock();
}

static uint64_t fresh(void)
{
	return __atomic_fetch_add(&numbers, 1, __ATOMIC_RELAXED);
}

uint64_t sg_request_new(MPI_Request request, bool receive)
{
	uint64_t number = fresh();

	remember((struct request){
		.handle = handle_of(request), .number = number, .receive = receive});
	return number;
}

/* A copy of a request; one that is not persistent is forgotten. */
static bool find(uint64_t handle, struct request *found, bool forget)
{
	struct request **place, *old;

	sg_lock();
	place = place_of(handle);
	old = *place;
	if (old) {
		*found = *old;
		if (forget) {
			*place = old->next;
			free(old);
		}
	}
	sg_unlock();
	return old != NULL;
}

static void set_number(uint64_t handle, uint64_t number)
{
	struct request *request;

	sg_lock();
	request = *place_of(handle);
	if (request)
		request->number = number;
	sg_unlock();
}

static bool is_wild(int peer, int tag)
{
	return peer == MPI_ANY_SOURCE || tag == MPI_ANY_TAG;
}

/* Whether messages over this communicator can be recorded. */
static bool records(MPI_Comm comm, int peer, uint32_t *number)
{
	if (peer == MPI_PROC_NULL)
		return false;
	*number = sg_communicator(comm);
	if (*number == SG_FOREIGN)
		sg_unsupported("a message over an intercommunicator");
	return *number != SG_FOREIGN;
}

static void sent(MPI_Comm comm, int to, int tag, uint64_t bytes)
{
	uint32_t number;

	if (records(comm, to, &number))
		SG_ADD(SG_SEND, number, (uint64_t)to, (uint64_t)tag, bytes);
}

/* A buffered send waits for nobody: nothing follows its end. */
static void buffered(MPI_Comm comm, int to, int tag, uint64_t bytes)
{
	uint32_t number;

	if (records(comm, to, &number))
		SG_ADD(SG_ISEND, fresh(), number, (uint64_t)to, (uint64_t)tag, bytes);
}

static void received(MPI_Comm comm, bool wild, const MPI_Status *status)
{
	uint32_t number;

	if (records(comm, status->MPI_SOURCE, &number))
		SG_ADD(SG_RECEIVE, number, (uint64_t)status->MPI_SOURCE, (uint64_t)status->MPI_TAG,
		       sg_received(status), wild);
}

static void sending(MPI_Comm comm, int to, int tag, uint64_t bytes, MPI_Request request)
{
	uint32_t number;

	if (records(comm, to, &number))
		SG_ADD(SG_ISEND, sg_request_new(request, false), number, (uint64_t)to,
		       (uint64_t)tag, bytes);
}

static void receiving(MPI_Comm comm, int from, int tag, MPI_Request request)
{
	uint32_t number;

	if (records(comm, from, &number))
		SG_ADD(SG_IRECEIVE, sg_request_new(request, true), number, is_wild(from, tag));
}

static void probed(MPI_Comm comm, const MPI_Status *status)
{
	uint32_t number;

	if (records(comm, status->MPI_SOURCE, &number))
		SG_ADD(SG_PROBE, number, (uint64_t)status->MPI_SOURCE, (uint64_t)status->MPI_TAG,
		       sg_received(status));
}

static void done(uint64_t handle, const MPI_Status *status)
{
	struct request request;
	int cancelled = 0;

	if (!find(handle, &request, false) || request.number == 0)
		return;
	if (request.persistent)
		set_number(handle, 0);
	else
		find(handle, &request, true);
	if (!request.receive) {
		SG_ADD(SG_DONE, request.number);
		return;
	}
	PMPI_Test_cancelled(status, &cancelled);
	if (cancelled)
		SG_ADD(SG_DONE, request.number);
	else if (status->MPI_SOURCE >= 0)
		SG_ADD(SG_DONE_RECEIVE, request.number, (uint64_t)status->MPI_SOURCE,
		       (uint64_t)status->MPI_TAG, sg_received(status));
}

/* The program's status, or one of ours if it does not want to know. */
#define STATUS_OR(own, given) ((given) == MPI_STATUS_IGNORE ? &(own) : (given))

#define SENDS(name, record)                                                                      \
	int MPI_##name(const void *data, int count, MPI_Datatype type, int to, int tag,            \
		       MPI_Comm comm)                                                              \
	{                                                                                          \
		SG_TRACED(PMPI_##name(data, count, type, to, tag, comm),                           \
			  record(comm, to, tag, sg_bytes(count, type)));                           \
	}

#define SENDS_LATER(name)                                                                        \
	int MPI_##name(const void *data, int count, MPI_Datatype type, int to, int tag,            \
		       MPI_Comm comm, MPI_Request *request)                                        \
	{                                                                                          \
		SG_TRACED(PMPI_##name(data, count, type, to, tag, comm, request),                  \
			  sending(comm, to, tag, sg_bytes(count, type), *request));                \
	}

SENDS(Send, sent)
SENDS(Ssend, sent)
SENDS(Rsend, sent)
SENDS(Bsend, buffered)
SENDS_LATER(Isend)
SENDS_LATER(Issend)
SENDS_LATER(Irsend)

int MPI_Ibsend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
	       MPI_Request *request)
{
	SG_TRACED(PMPI_Ibsend(data, count, type, to, tag, comm, request),
		  buffered(comm, to, tag, sg_bytes(count, type)));
}

int MPI_Recv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
	     MPI_Status *status)
{
	MPI_Status own;

	status = STATUS_OR(own, status);
	SG_TRACED(PMPI_Recv(data, count, type, from, tag, comm, status),
		  received(comm, is_wild(from, tag), status));
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
	      MPI_Request *request)
{
	SG_TRACED(PMPI_Irecv(data, count, type, from, tag, comm, request),
		  receiving(comm, from, tag, *request));
}

/* Both begin at once, and it ends when both have ended. */
static void exchanged(MPI_Comm comm, int to, int send_tag, uint64_t bytes, bool wild,
		      const MPI_Status *status)
{
	uint64_t send = fresh(), receive = fresh();
	uint32_t number;
	bool sends = records(comm, to, &number);
	bool receives = records(comm, status->MPI_SOURCE, &number);

	if (receives)
		SG_ADD(SG_IRECEIVE, receive, number, wild);
	if (sends)
		SG_ADD(SG_ISEND, send, number, (uint64_t)to, (uint64_t)send_tag, bytes);
	if (receives)
		SG_ADD(SG_DONE_RECEIVE, receive, (uint64_t)status->MPI_SOURCE,
		       (uint64_t)status->MPI_TAG, sg_received(status));
	if (sends)
		SG_ADD(SG_DONE, send);
}

int MPI_Sendrecv(const void *data, int count, MPI_Datatype type, int to, int send_tag, void *into,
		 int into_count, MPI_Datatype into_type, int from, int tag, MPI_Comm comm,
		 MPI_Status *status)
{
	MPI_Status own;

	status = STATUS_OR(own, status);
	SG_TRACED(PMPI_Sendrecv(data, count, type, to, send_tag, into, into_count, into_type, from,
				tag, comm, status),
		  exchanged(comm, to, send_tag, sg_bytes(count, type), is_wild(from, tag), status));
}

int MPI_Sendrecv_replace(void *data, int count, MPI_Datatype type, int to, int send_tag, int from,
			 int tag, MPI_Comm comm, MPI_Status *status)
{
	MPI_Status own;

	status = STATUS_OR(own, status);
	SG_TRACED(PMPI_Sendrecv_replace(data, count, type, to, send_tag, from, tag, comm, status),
		  exchanged(comm, to, send_tag, sg_bytes(count, type), is_wild(from, tag), status));
}

int MPI_Probe(int from, int tag, MPI_Comm comm, MPI_Status *status)
{
	MPI_Status own;

	status = STATUS_OR(own, status);
	SG_TRACED(PMPI_Probe(from, tag, comm, status), probed(comm, status));
}

int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
	MPI_Status own;

	status = STATUS_OR(own, status);
	SG_TRACED(PMPI_Iprobe(from, tag, comm, flag, status),
		  *flag ? probed(comm, status) : sg_idle());
}

/* A message that a matching probe has found is received: nothing else can take it. */
int MPI_Mprobe(int from, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status)
{
	MPI_Status own;

	status = STATUS_OR(own, status);
	SG_TRACED(PMPI_Mprobe(from, tag, comm, message, status),
		  received(comm, is_wild(from, tag), status));
}

int MPI_Improbe(int from, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
		MPI_Status *status)
{
	MPI_Status own;

	status = STATUS_OR(own, status);
	SG_TRACED(PMPI_Improbe(from, tag, comm, flag, message, status),
		  *flag ? received(comm, is_wild(from, tag), status) : sg_idle());
}

int MPI_Mrecv(void *data, int count, MPI_Datatype type, MPI_Message *message, MPI_Status *status)
{
	SG_TRACED(PMPI_Mrecv(data, count, type, message, status), (void)message);
}

int MPI_Imrecv(void *data, int count, MPI_Datatype type, MPI_Message *message, MPI_Request *request)
{
	SG_TRACED(PMPI_Imrecv(data, count, type, message, request), (void)message);
}

static void persistent(MPI_Comm comm, int peer, int tag, uint64_t bytes, bool receive,
		       MPI_Request request)
{
	uint32_t number;

	if (records(comm, peer, &number))
		remember((struct request){.handle = handle_of(request),
					  .receive = receive,
					  .persistent = true,
					  .wild = receive && is_wild(peer, tag),
					  .comm = number,
					  .peer = peer,
					  .tag = tag,
					  .bytes = bytes});
}

#define SENDS_OFTEN(name)                                                                        \
	int MPI_##name(const void *data, int count, MPI_Datatype type, int to, int tag,            \
		       MPI_Comm comm, MPI_Request *request)                                        \
	{                                                                                          \
		SG_TRACED(PMPI_##name(data, count, type, to, tag, comm, request),                  \
			  persistent(comm, to, tag, sg_bytes(count, type), false, *request));      \
	}

SENDS_OFTEN(Send_init)
SENDS_OFTEN(Ssend_init)
SENDS_OFTEN(Bsend_init)
SENDS_OFTEN(Rsend_init)

int MPI_Recv_init(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
		  MPI_Request *request)
{
	SG_TRACED(PMPI_Recv_init(data, count, type, from, tag, comm, request),
		  persistent(comm, from, tag, 0, true, *request));
}

static void started(MPI_Request handle)
{
	struct request request;
	uint64_t number = fresh();

	if (!find(handle_of(handle), &request, false))
		return;
	set_number(request.handle, number);
	if (request.receive)
		SG_ADD(SG_IRECEIVE, number, request.comm, request.wild);
	else
		SG_ADD(SG_ISEND, number, request.comm, (uint64_t)request.peer,
		       (uint64_t)request.tag, request.bytes);
}

int MPI_Start(MPI_Request *request)
{
	SG_TRACED(PMPI_Start(request), started(*request));
}

static void all_started(int count, const MPI_Request requests[])
{
	for (int i = 0; i < count; i++)
		started(requests[i]);
}

int MPI_Startall(int count, MPI_Request requests[])
{
	SG_TRACED(PMPI_Startall(count, requests), all_started(count, requests));
}

int MPI_Request_free(MPI_Request *request)
{
	uint64_t handle = handle_of(*request);
	struct request old;

	SG_TRACED(PMPI_Request_free(request), find(handle, &old, true));
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
	uint64_t handle = handle_of(*request);
	MPI_Status own;

	status = STATUS_OR(own, status);
	SG_TRACED(PMPI_Wait(request, status), done(handle, status));
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
	uint64_t handle = handle_of(*request);
	MPI_Status own;

	status = STATUS_OR(own, status);
	SG_TRACED(PMPI_Test(request, flag, status), *flag ? done(handle, status) : sg_idle());
}

/* Handles of requests before a call that may end them, and statuses for those that end. */
struct several {
	uint64_t near_handles[REQUESTS_NEAR];
	MPI_Status near_statuses[REQUESTS_NEAR];
	uint64_t *handles;
	MPI_Status *statuses;
	MPI_Status *own;
};

static void several_begin(struct several *several, int count, const MPI_Request requests[],
			  MPI_Status statuses[])
{
	size_t size = count > 0 ? (size_t)count : 1;

	several->handles = several->near_handles;
	several->own = several->near_statuses;
	if (size > REQUESTS_NEAR) {
		several->handles = malloc(size * sizeof(*several->handles));
		several->own = malloc(size * sizeof(*several->own));
		if (!several->handles || !several->own)
			abort();
	}
	for (int i = 0; i < count; i++)
		several->handles[i] = handle_of(requests[i]);
	several->statuses = statuses == MPI_STATUSES_IGNORE ? several->own : statuses;
}

static void several_end(struct several *several)
{
	if (several->handles != several->near_handles) {
		free(several->handles);
		free(several->own);
	}
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[])
{
	struct several several;
	bool own = sg_enter();
	int result;

	several_begin(&several, count, requests, statuses);
	result = PMPI_Waitall(count, requests, several.statuses);
	for (int i = 0; own && result == MPI_SUCCESS && i < count; i++)
		done(several.handles[i], &several.statuses[i]);
	several_end(&several);
	sg_leave();
	return result;
}

int MPI_Testall(int count, MPI_Request requests[], int *flag, MPI_Status statuses[])
{
	struct several several;
	bool own = sg_enter();
	int result;

	several_begin(&several, count, requests, statuses);
	result = PMPI_Testall(count, requests, flag, several.statuses);
	own = own && result == MPI_SUCCESS;
	if (own && !*flag)
		sg_idle();
	for (int i = 0; own && *flag && i < count; i++)
		done(several.handles[i], &several.statuses[i]);
	several_end(&several);
	sg_leave();
	return result;
}

int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status)
{
	struct several several;
	MPI_Status one;
	bool own = sg_enter();
	int result;

	status = STATUS_OR(one, status);
	several_begin(&several, count, requests, MPI_STATUSES_IGNORE);
	result = PMPI_Waitany(count, requests, index, status);
	if (own && result == MPI_SUCCESS && *index != MPI_UNDEFINED)
		done(several.handles[*index], status);
	several_end(&several);
	sg_leave();
	return result;
}

int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status)
{
	struct several several;
	MPI_Status one;
	bool own = sg_enter();
	int result;

	status = STATUS_OR(one, status);
	several_begin(&several, count, requests, MPI_STATUSES_IGNORE);
	result = PMPI_Testany(count, requests, index, flag, status);
	own = own && result == MPI_SUCCESS;
	if (own && !*flag)
		sg_idle();
	else if (own && *index != MPI_UNDEFINED)
		done(several.handles[*index], status);
	several_end(&several);
	sg_leave();
	return result;
}

typedef int some_call(int count, MPI_Request requests[], int *ended, int indices[],
		      MPI_Status statuses[]);

static int some(some_call *call, int count, MPI_Request requests[], int *ended, int indices[],
		MPI_Status statuses[])
{
	struct several several;
	bool own = sg_enter();
	int result;

	several_begin(&several, count, requests, statuses);
	result = call(count, requests, ended, indices, several.statuses);
	own = own && result == MPI_SUCCESS && *ended != MPI_UNDEFINED;
	if (own && *ended == 0)
		sg_idle();
	for (int i = 0; own && i < *ended; i++)
		done(several.handles[indices[i]], &several.statuses[i]);
	several_end(&several);
	sg_leave();
	return result;
}

int MPI_Waitsome(int count, MPI_Request requests[], int *ended, int indices[],
		 MPI_Status statuses[])
{
	return some(PMPI_Waitsome, count, requests, ended, indices, statuses);
}

int MPI_Testsome(int count, MPI_Request requests[], int *ended, int indices[],
		 MPI_Status statuses[])
{
	return some(PMPI_Testsome, count, requests, ended, indices, statuses);
}
