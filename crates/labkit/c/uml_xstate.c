/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded below kernels of User-Mode Linux: the extended state of a traced process in the length
 * that the machine has it. Such a kernel keeps the first 2696 bytes (HOST_FP_SIZE of Linux 6.1).
 * PTRACE_GETREGSET gives as much; PTRACE_SETREGSET wants all, or it is EFAULT. What is beyond, the
 * registers of AMX, no guest uses: it stays as it is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/uio.h>

#define GETREGSET 0x4204
#define SETREGSET 0x4205
#define XSTATE 0x202

typedef long (*ptrace_fn)(int request, long pid, long addr, void *data);

static ptrace_fn next;
/* Not on the stack, which is a few pages in such a kernel. It has one CPU. */
static char state[1 << 16];

__attribute__((constructor)) static void find_next(void)
{
	*(void **)&next = dlsym(RTLD_NEXT, "ptrace");
}

static long set_whole(long pid, const struct iovec *part)
{
	struct iovec whole = { state, sizeof(state) };

	if (next(GETREGSET, pid, XSTATE, &whole) < 0)
		return -1;
	memcpy(state, part->iov_base, part->iov_len < whole.iov_len ? part->iov_len : whole.iov_len);
	return next(SETREGSET, pid, XSTATE, &whole);
}

long ptrace(int request, ...)
{
	va_list more;
	long pid, addr;
	void *data;

	va_start(more, request);
	pid = va_arg(more, int);
	addr = va_arg(more, long);
	data = va_arg(more, void *);
	va_end(more);
	if (request == SETREGSET && addr == XSTATE)
		return set_whole(pid, data);
	return next(request, pid, addr, data);
}
