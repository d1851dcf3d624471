// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A guest of a virtual machine in the tests, without an operating system: the driver of one network
// adapter (Virtio 1.2, 4.1 and 5.1), which exchanges numbered frames with its peer and says on the
// serial port what came. QEMU boots it as a kernel (Multiboot 1).
//
//   machine ME PEER [COUNT [MIGRATES [PAIRS]]]
//
//   ME, PEER   numbers of addresses, 1 to 255
//   COUNT      frames to send, 0 for as many as until it is told to stop
//   MIGRATES   1 for a machine that migrates
//   PAIRS      pairs of queues, 1 or 2; frames are sent by each in turn, and come by that of their
//              sender's number
//
// Lines: "at N" while N frames have come, "gap A B" where numbers from A to before B are missing,
// "wrong: ..." for what must never be, "done N MISSING" when the last frame of the peer has come
// and all of its own are taken.

#include <stdint.h>

#define ENTRIES 256
#define BUFFER 2048
#define HELD 128
#define HEADER 12
#define NUMBERED 0x88b5 // for experiments (IEEE 802), as its neighbour
#define CONTROL 0x88b6	// 0: stop; 1 of the peer: it has sent as many as its number says
#define MERGEABLE (1u << 15)
#define CONTROL_QUEUE (1u << 17)
#define SEVERAL_PAIRS (1u << 22)
#define PAIRS 2

__asm__(".section .multiboot,\"a\"\n"
	".long 0x1badb002, 0, -0x1badb002\n"
	".text\n.globl start\nstart:\n"
	"mov $stack + 16384, %esp\n"
	"push %ebx\ncall run\n");

uint8_t stack[16384];

struct descriptor { uint64_t at; uint32_t bytes; uint16_t flags, next; };
struct available { uint16_t flags, index, ring[ENTRIES], event; };
struct used { uint16_t flags, index; struct { uint32_t head, bytes; } ring[ENTRIES]; uint16_t event; };

// Each of the three has pages of its own: only the device writes those of `used`.
struct ring {
	struct descriptor table[ENTRIES] __attribute__((aligned(4096)));
	struct available available __attribute__((aligned(4096)));
	volatile struct used used __attribute__((aligned(4096)));
	uint8_t buffers[ENTRIES][BUFFER] __attribute__((aligned(4096)));
	volatile uint16_t *notify;
	uint16_t number, seen;
	// Of a receive ring, by buffer the number of its frame, for a second look: a buffer goes
	// back only when HELD more have come, so that a machine that has migrated looks at what was
	// written before.
	uint16_t held[HELD];
	uint32_t held_numbers[ENTRIES], held_count;
	// Of a transmit ring.
	uint8_t is_free[ENTRIES];
	uint16_t free_slots[ENTRIES];
	uint32_t free_count;
	// Numbered frames: those sent, the next one of the peer.
	uint32_t sent, expected;
	// Of a receive ring: a call of the peer has come by it; the peer has said the same.
	uint8_t has_heard, is_heard;
};

static struct ring receive[PAIRS], transmit[PAIRS], control;
static uint32_t pairs = 1;

static void out8(uint16_t port, uint8_t value)
{
	__asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static void out32(uint16_t port, uint32_t value)
{
	__asm__ volatile("outl %0, %1" : : "a"(value), "Nd"(port));
}

static uint8_t in8(uint16_t port)
{
	uint8_t value;

	__asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
	return value;
}

static uint32_t in32(uint16_t port)
{
	uint32_t value;

	__asm__ volatile("inl %1, %0" : "=a"(value) : "Nd"(port));
	return value;
}

// The compiler may call it.
void *memset(void *to, int value, uint32_t bytes)
{
	volatile uint8_t *at = to;
	while (bytes--)
		*at++ = (uint8_t)value;
	return to;
}

static void say(const char *text)
{
	for (; *text; text++) {
		while (!(in8(0x3fd) & 0x20)) // the transmitter is busy
			;
		out8(0x3f8, (uint8_t)*text);
	}
}

static void say_number(const char *before, uint32_t value)
{
	char digits[12], *at = digits + sizeof digits - 1;
	*at = 0;
	do
		*--at = (char)('0' + value % 10);
	while (value /= 10);
	say(before);
	say(at);
}

static void wrong(const char *what, uint32_t is, uint32_t expected)
{
	static unsigned lines;
	if (lines++ >= 20)
		return;
	say("wrong: ");
	say(what);
	say_number(" ", is);
	say_number(", expected ", expected);
	say("\n");
}

static uint32_t pci(uint32_t device, uint32_t at)
{
	out32(0xcf8, 0x80000000u | device << 8 | (at & 0xfc));
	return in32(0xcfc);
}

// The first network adapter of Virtio on the first 16 buses.
static uint32_t find(void)
{
	for (uint32_t device = 0; device < 16 * 256; device++) {
		uint32_t id = pci(device, 0);
		if (id == 0x10001af4 || id == 0x10411af4)
			return device;
	}
	say("error: no adapter\n");
	for (;;)
		;
}

// The structure of this kind that a capability of the device describes (Virtio 1.2, 4.1.4).
static volatile uint8_t *structure(uint32_t device, uint8_t kind, uint32_t *multiplier)
{
	for (uint32_t at = pci(device, 0x34) & 0xfc; at; at = pci(device, at) >> 8 & 0xfc) {
		uint32_t first = pci(device, at);
		if ((first & 0xff) != 9 || first >> 24 != kind)
			continue;
		uint32_t bar = 0x10 + 4 * (pci(device, at + 4) & 0xff);
		*multiplier = pci(device, at + 16);
		return (volatile uint8_t *)((pci(device, bar) & ~15u) + pci(device, at + 8));
	}
	say("error: no such structure\n");
	for (;;)
		;
}

static void set64(volatile uint8_t *at, const volatile void *value)
{
	*(volatile uint32_t *)at = (uint32_t)value;
	*(volatile uint32_t *)(at + 4) = 0;
}

static void kick(struct ring *ring)
{
	__sync_synchronize();
	if (!(ring->used.flags & 1))
		*ring->notify = ring->number;
}

static void offer(struct ring *ring, uint16_t slot, uint32_t bytes, uint16_t flags)
{
	ring->table[slot] = (struct descriptor){(uint32_t)ring->buffers[slot], bytes, flags, 0};
	ring->available.ring[ring->available.index % ENTRIES] = slot;
	__sync_synchronize();
	(*(volatile uint16_t *)&ring->available.index)++;
}

static void start_ring(struct ring *ring, uint16_t number, volatile uint8_t *common, volatile uint8_t *notify,
		       uint32_t multiplier)
{
	ring->number = number;
	*(volatile uint16_t *)(common + 22) = number;
	// That of commands is shorter, and has one.
	if (ring != &control && *(volatile uint16_t *)(common + 24) < ENTRIES)
		say("error: a short ring\n");
	if (ring != &control)
		*(volatile uint16_t *)(common + 24) = ENTRIES;
	set64(common + 32, ring->table);
	set64(common + 40, &ring->available);
	set64(common + 48, &ring->used);
	ring->notify = (volatile uint16_t *)(notify + *(volatile uint16_t *)(common + 30) * multiplier);
	ring->available.flags = 1; // it polls
	*(volatile uint16_t *)(common + 28) = 1;
}

// Tells the device how many pairs there are (Virtio 1.2, 5.1.6.5.5).
static void use_pairs(void)
{
	uint8_t *command = control.buffers[0];
	command[0] = 4, command[1] = 0, command[2] = (uint8_t)pairs, command[3] = 0;
	command[4] = 0xff; // the answer
	control.table[1] = (struct descriptor){(uint32_t)command + 4, 1, 2, 0};
	offer(&control, 0, 4, 1);
	control.table[0].next = 1;
	kick(&control);
	while (control.used.index == 0)
		;
	if (*(volatile uint8_t *)(command + 4) != 0)
		say("error: no second pair\n");
}

static void set_up(void)
{
	uint32_t device = find(), multiplier;
	out32(0xcf8, 0x80000000u | device << 8 | 4);
	out32(0xcfc, 6); // memory, and master of the bus
	volatile uint8_t *common = structure(device, 1, &multiplier);
	volatile uint8_t *own = structure(device, 4, &multiplier);
	volatile uint8_t *notify = structure(device, 2, &multiplier);
	volatile uint8_t *status = common + 20;
	*status = 0;
	while (*status)
		;
	*status = 1 | 2;
	*(volatile uint32_t *)(common + 8) = 0;
	*(volatile uint32_t *)(common + 12) = MERGEABLE | (pairs > 1 ? CONTROL_QUEUE | SEVERAL_PAIRS : 0);
	*(volatile uint32_t *)(common + 8) = 1;
	*(volatile uint32_t *)(common + 12) = 1; // Virtio 1
	*status = 1 | 2 | 8;
	if (!(*status & 8))
		say("error: features are refused\n");
	for (uint16_t pair = 0; pair < pairs; pair++) {
		start_ring(&receive[pair], 2 * pair, common, notify, multiplier);
		start_ring(&transmit[pair], 2 * pair + 1, common, notify, multiplier);
	}
	if (pairs > 1) // behind the most pairs that the device has
		start_ring(&control, 2 * *(volatile uint16_t *)(own + 8), common, notify, multiplier);
	*status = 1 | 2 | 8 | 4;
	if (pairs > 1)
		use_pairs();
	for (uint32_t pair = 0; pair < pairs; pair++) {
		struct ring *out = &transmit[pair];
		for (uint16_t slot = 0; slot < ENTRIES; slot++) {
			offer(&receive[pair], slot, BUFFER, 2);
			out->free_slots[out->free_count++] = slot;
			out->is_free[slot] = 1;
		}
		out->sent = receive[pair].expected = pair;
		kick(&receive[pair]);
	}
}

static uint32_t me, peer, to_send = 0xffffffff;
// Frames of the peer that are missing, those and the ones that came, and by pair how many it has
// sent in all.
static uint32_t missing, came_count, all[PAIRS] = {0xffffffff, 0xffffffff};
static uint8_t has_stopped, has_ended[PAIRS];

static uint32_t length(uint32_t number) { return 60 + number % 200; }

static void send(struct ring *out, uint32_t to, uint16_t type, uint32_t number)
{
	uint16_t slot = out->free_slots[--out->free_count];
	uint8_t *frame = out->buffers[slot] + HEADER;
	out->is_free[slot] = 0;
	memset(out->buffers[slot], 0, HEADER + 22);
	if (to == 0xff)
		memset(frame, 0xff, 6);
	frame[0] |= 2, frame[5] = (uint8_t)to;
	frame[6] = 2, frame[11] = (uint8_t)me;
	frame[12] = (uint8_t)(type >> 8), frame[13] = (uint8_t)type;
	for (int at = 0; at < 4; at++)
		frame[18 + at] = (uint8_t)(number >> (24 - 8 * at));
	memset(frame + 22, (uint8_t)number, length(number) - 22);
	offer(out, slot, HEADER + length(number), 0);
	kick(out);
}

static void check(const uint8_t *frame, uint32_t number)
{
	for (uint32_t at = 22; at < length(number); at++)
		if (frame[at] != (uint8_t)number)
			return wrong("a byte", frame[at], (uint8_t)number);
}

static void numbered(struct ring *in, const uint8_t *frame, uint32_t bytes, uint32_t number)
{
	if (number < in->expected || number % pairs != in->expected % pairs)
		return wrong("a number again, or of the other pair", number, in->expected);
	if (number > in->expected) {
		say_number("gap ", in->expected);
		say_number(" ", number);
		say("\n");
		missing += (number - in->expected) / pairs;
	}
	came_count += 1 + (number - in->expected) / pairs;
	in->expected = number + pairs;
	if (bytes != length(number))
		return wrong("length", bytes, length(number));
	check(frame, number);
	if ((came_count - missing) % 1000 == 0) {
		say_number("at ", came_count - missing);
		say("\n");
	}
}

#define NONE 0xffffffff

static void hold(struct ring *in, uint16_t slot)
{
	uint16_t *place = &in->held[in->held_count % HELD], oldest = *place;
	*place = slot;
	if (in->held_count++ < HELD)
		return;
	if (in->held_numbers[oldest] != NONE)
		check(in->buffers[oldest] + HEADER, in->held_numbers[oldest]);
	offer(in, oldest, BUFFER, 2);
}

static void came(struct ring *in, const uint8_t *frame, uint32_t bytes, uint32_t *held_number)
{
	uint32_t type = (uint32_t)frame[12] << 8 | frame[13];
	uint32_t number = (uint32_t)frame[18] << 24 | (uint32_t)frame[19] << 16 | (uint32_t)frame[20] << 8 | frame[21];
	if (type == CONTROL && number == 0 && frame[11] != peer)
		has_stopped = 1;
	if (frame[11] != peer)
		return;
	if (type == CONTROL)
		all[in - receive] = number;
	else if (type == NUMBERED && frame[0] == 2) {
		numbered(in, frame, bytes, number);
		*held_number = number;
	} else if (type == NUMBERED) {
		in->has_heard = 1;
		in->is_heard |= number == 1;
	}
}

static void take(struct ring *in, struct ring *out)
{
	uint8_t any = 0;
	for (; in->seen != in->used.index; in->seen++, any = 1) {
		uint32_t slot = in->used.ring[in->seen % ENTRIES].head;
		uint32_t bytes = in->used.ring[in->seen % ENTRIES].bytes;
		if (slot >= ENTRIES || bytes < HEADER + 22 || bytes > BUFFER) {
			wrong("a used entry", slot, bytes);
			continue;
		}
		__sync_synchronize();
		in->held_numbers[slot] = NONE;
		came(in, in->buffers[slot] + HEADER, bytes - HEADER, &in->held_numbers[slot]);
		hold(in, (uint16_t)slot);
	}
	if (any)
		kick(in);
	for (; out->seen != out->used.index; out->seen++) {
		uint32_t slot = out->used.ring[out->seen % ENTRIES].head;
		if (slot >= ENTRIES || out->is_free[slot]) {
			wrong("a chain comes back that is not there:", slot, 0);
			continue;
		}
		out->is_free[slot] = 1;
		out->free_slots[out->free_count++] = (uint16_t)slot;
	}
}

extern uint8_t _end;

static int is_devices(uint32_t page)
{
	for (uint32_t pair = 0; pair < pairs; pair++)
		if (page == (uint32_t)&receive[pair].used || page == (uint32_t)&transmit[pair].used)
			return 1;
	return 0;
}

// Writes once to each page that the guest writes, and none that the device does. The emulation of
// QEMU before 9.0 does not notice writes to pages that it has written lately, so that they would be
// missing after a migration: changing CR0.WP makes it forget where it has written.
static void write_again(void)
{
	__asm__ volatile("mov %%cr0, %%eax\n xor $0x10000, %%eax\n mov %%eax, %%cr0" : : : "eax", "memory");
	for (uint32_t page = 0x100000; page < (uint32_t)&_end; page += 4096)
		if (!is_devices(page))
			__sync_fetch_and_or((uint32_t *)page, 0);
}

// The number behind the next space of a text.
static const char *argument(const char *text, uint32_t *value)
{
	while (*text && *text != ' ')
		text++;
	while (*text == ' ')
		text++;
	if (*text >= '0' && *text <= '9')
		for (*value = 0; *text >= '0' && *text <= '9'; text++)
			*value = 10 * *value + (uint32_t)(*text - '0');
	return text;
}

// What one pair does next.
static void turn(uint32_t pair, uint32_t number)
{
	struct ring *in = &receive[pair], *out = &transmit[pair];
	take(in, out);
	if (!in->is_heard || (in->expected == pair && all[pair] == 0xffffffff)) {
		// Its own address becomes known. Numbered frames begin when the peer has heard such
		// a call by its ring of this pair, which works then.
		if (number % (1 << 16) == 0 && out->free_count > 0)
			send(out, 0xff, NUMBERED, in->has_heard);
	}
	uint8_t is_over = out->sent >= to_send || has_stopped;
	if (in->is_heard && !is_over && out->free_count > 0) {
		send(out, peer, NUMBERED, out->sent);
		out->sent += pairs;
	}
	if (in->is_heard && is_over && !has_ended[pair] && out->free_count > 0) {
		send(out, peer, CONTROL, out->sent);
		has_ended[pair] = 1;
	}
}

static int is_done(void)
{
	for (uint32_t pair = 0; pair < pairs; pair++)
		if (!has_ended[pair] || receive[pair].expected != all[pair] ||
		    transmit[pair].free_count != ENTRIES)
			return 0;
	return 1;
}

void run(const uint32_t *multiboot)
{
	// QEMU puts the name of the kernel before its arguments.
	uint32_t count = 0, migrates = 0;
	const char *text = (const char *)multiboot[4];
	uint32_t *values[] = {&me, &peer, &count, &migrates, &pairs};
	for (int at = 0; at < 5; at++)
		text = argument(text, values[at]);
	if (count > 0)
		to_send = count;
	set_up();
	say("ready\n");
	uint8_t has_said = 0;
	for (uint32_t number = 0;; number++) {
		for (uint32_t pair = 0; pair < pairs; pair++)
			turn(pair, number);
		if (migrates)
			write_again();
		if (!has_said && is_done()) {
			has_said = 1;
			say_number("done ", came_count);
			say_number(" ", missing);
			say("\n");
		}
	}
}
