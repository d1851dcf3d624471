// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Enforcement for tests, in which every call that may fail fails when told to (helpers.h). */
#define SG_FAULTS

#include "enforce.bpf.c"
