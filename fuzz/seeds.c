/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The starting corpus of each fuzz target, made afresh from a fixed sequence.
 *
 *	seeds TARGET DIR
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS_PER_TARGET 32

/* xorshift64 (Marsaglia 2003): the same files on every machine. */
static unsigned long long state = 0x9e3779b97f4a7c15ULL;

static unsigned char next_byte(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned char)(state >> 24);
}

static int write_seed(const char *dir, int number, const unsigned char *bytes,
		      size_t size)
{
	char path[4096];
	FILE *file;
	int failed;

	snprintf(path, sizeof(path), "%s/seed-%02d", dir, number);
	file = fopen(path, "wb");
	if (!file) {
		perror(path);
		return 1;
	}
	failed = fwrite(bytes, 1, size, file) != size;
	failed |= fclose(file) != 0;
	if (failed)
		perror(path);
	return failed;
}

/* Sequences of operations: any bytes are valid, longer ones go deeper. */
static int operations(const char *dir)
{
	unsigned char bytes[SEEDS_PER_TARGET * 64];
	int number;
	size_t i;

	for (number = 0; number < SEEDS_PER_TARGET; number++) {
		size_t size = 64 * (size_t)(number + 1);

		for (i = 0; i < size; i++)
			bytes[i] = next_byte();
		if (write_seed(dir, number, bytes, size))
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s TARGET DIR\n", argv[0]);
		return 2;
	}
	return operations(argv[2]);
}
