// SPDX-License-Identifier: Apache-2.0
/* A tenant of the lab with lwIP's network stack (Debian's liblwip) on a TAP. What it is told and says:
 * crates/lab/src/foreign.rs. All of TCP happens in lwIP's own thread; another one reads the TAP. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <lwip/opt.h>
#include <lwip/tcp.h>
#include <lwip/tcpip.h>

#define PERIOD 65521
#define CHUNK 65536
#define HEADER 14
#define FRAME_MAX 9216
#define NS_PER_S 1000000000ull
#define FULL_US 100

static char **arguments;

static struct {
	int tap;
	uint8_t header[HEADER];
	struct netif netif;
} device;

static struct {
	struct tcp_pcb *pcb;
	bool sends;
	uint64_t start_ns, begin_ns, end_ns, stop_ns; /* begin, end and stop after the start */
	uint64_t bytes, verified, measured;
	uint64_t last_ns, gap_ns;
	char error[160];
} run;

static uint8_t pattern[PERIOD + CHUNK];

static void die(const char *what)
{
	printf("error %s: %s\n", what, strerror(errno));
	exit(1);
}

static const char *text(const char *name)
{
	size_t length = strlen(name);

	for (char **argument = arguments; *argument; argument++)
		if (!strncmp(*argument, name, length) && (*argument)[length] == '=')
			return *argument + length + 1;
	errno = EINVAL;
	die(name);
	return NULL;
}

static uint64_t number(const char *name)
{
	return strtoull(text(name), NULL, 10);
}

/* That of crates/lab/src/tenant/pattern.rs: xorshift64, repeated so that any phase has a chunk. */
static void make_pattern(void)
{
	uint64_t state = 0x9e3779b97f4a7c15ull;

	for (size_t i = 0; i < PERIOD; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		pattern[i] = state >> 32;
	}
	for (size_t i = PERIOD; i < sizeof(pattern); i++)
		pattern[i] = pattern[i - PERIOD];
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec - run.start_ns;
}

static void wait_until(uint64_t after_start_ns)
{
	uint64_t at = run.start_ns + after_start_ns;
	struct timespec when = { .tv_sec = at / NS_PER_S, .tv_nsec = at % NS_PER_S };

	while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &when, NULL) == EINTR)
		;
}

static void note(const char *format, ...)
{
	va_list list;

	if (run.error[0] || now_ns() >= run.stop_ns)
		return;
	va_start(list, format);
	vsnprintf(run.error, sizeof(run.error), format, list);
	va_end(list);
}

/* ---- the TAP ---- */

static void read_mac(const char *name, uint8_t *mac)
{
	if (sscanf(text(name), "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3,
		   mac + 4, mac + 5) != 6) {
		errno = EINVAL;
		die(name);
	}
}

static void attach_tap(void)
{
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI };

	read_mac("peer-mac", device.header);
	read_mac("mac", device.header + 6);
	device.header[12] = 0x08; /* IPv4 */
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", text("tap"));
	device.tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	if (device.tap < 0)
		die("/dev/net/tun");
	if (ioctl(device.tap, TUNSETIFF, &request) < 0)
		die(request.ifr_name);
}

/* The lab's tables are static: every packet leaves with the same Ethernet header. */
static err_t output(struct netif *netif, struct pbuf *packet, const ip4_addr_t *to)
{
	uint8_t frame[FRAME_MAX];

	(void)netif, (void)to;
	if (packet->tot_len > sizeof(frame) - HEADER)
		return ERR_VAL;
	memcpy(frame, device.header, HEADER);
	pbuf_copy_partial(packet, frame + HEADER, packet->tot_len, 0);
	if (write(device.tap, frame, HEADER + packet->tot_len) < 0)
		return ERR_IF;
	return ERR_OK;
}

static err_t init_netif(struct netif *netif)
{
	netif->name[0] = 't';
	netif->name[1] = 'p';
	netif->mtu = number("mtu");
	netif->output = output;
	return ERR_OK;
}

static void *read_tap(void *unused)
{
	uint8_t frame[FRAME_MAX];

	(void)unused;
	for (;;) {
		ssize_t length = read(device.tap, frame, sizeof(frame));
		struct pbuf *packet;

		if (length < 0 && errno != EINTR)
			die("reading the TAP");
		if (length <= HEADER || memcmp(frame + 12, device.header + 12, 2))
			continue;
		packet = pbuf_alloc(PBUF_RAW, length - HEADER, PBUF_RAM);
		if (!packet)
			continue;
		pbuf_take(packet, frame + HEADER, length - HEADER);
		/* lwIP's mailbox is full: let the TAP's queue wait, as a driver would. */
		while (device.netif.input(packet, &device.netif) != ERR_OK)
			usleep(FULL_US);
	}
	return NULL;
}

/* ---- the stream ---- */

static void send_more(struct tcp_pcb *pcb)
{
	while (now_ns() < run.stop_ns) {
		uint32_t room = tcp_sndbuf(pcb);
		uint16_t length = room < CHUNK ? room : CHUNK - 1;
		err_t error;

		/* Whole segments where there is room for one, as an application's large writes make them. */
		if (length < tcp_mss(pcb))
			break;
		length -= length % tcp_mss(pcb);
		if (length > 8 * tcp_mss(pcb))
			length = 8 * tcp_mss(pcb);
		error = tcp_write(pcb, pattern + run.bytes % PERIOD, length, TCP_WRITE_FLAG_COPY);
		if (error == ERR_MEM)
			break;
		if (error != ERR_OK) {
			note("sending: lwIP's error %d", error);
			break;
		}
		run.bytes += length;
	}
	tcp_output(pcb);
}

static err_t on_sent(void *unused, struct tcp_pcb *pcb, u16_t length)
{
	(void)unused, (void)length;
	send_more(pcb);
	return ERR_OK;
}

static err_t on_poll(void *unused, struct tcp_pcb *pcb)
{
	(void)unused;
	send_more(pcb);
	return ERR_OK;
}

/* Nothing has arrived between the last time and now. */
static void count_gap(uint64_t now)
{
	uint64_t since = run.last_ns > run.begin_ns ? run.last_ns : run.begin_ns;

	if (now > since && now - since > run.gap_ns)
		run.gap_ns = now - since;
	run.last_ns = now;
}

static void count(const uint8_t *data, uint16_t length)
{
	uint64_t now = now_ns();

	if (!memcmp(data, pattern + run.bytes % PERIOD, length))
		run.verified += length;
	else
		note("payload differs behind byte %" PRIu64 " of the stream", run.bytes);
	run.bytes += length;
	if (now >= run.begin_ns && now < run.end_ns) {
		run.measured += length;
		count_gap(now);
	}
}

static err_t on_receive(void *unused, struct tcp_pcb *pcb, struct pbuf *data, err_t error)
{
	(void)unused, (void)error;
	if (!data) {
		note("the peer closed the connection");
		return ERR_OK;
	}
	for (struct pbuf *part = data; part; part = part->next)
		count(part->payload, part->len);
	tcp_recved(pcb, data->tot_len);
	pbuf_free(data);
	return ERR_OK;
}

static void on_error(void *unused, err_t error)
{
	(void)unused;
	run.pcb = NULL;
	note("the connection ended with lwIP's error %d", error);
}

static err_t on_connected(void *unused, struct tcp_pcb *pcb, err_t error)
{
	(void)unused, (void)error;
	tcp_sent(pcb, on_sent);
	tcp_poll(pcb, on_poll, 1);
	send_more(pcb);
	return ERR_OK;
}

static err_t on_accepted(void *unused, struct tcp_pcb *pcb, err_t error)
{
	(void)unused;
	if (error != ERR_OK || !pcb)
		return ERR_VAL;
	tcp_err(pcb, on_error);
	tcp_recv(pcb, on_receive);
	return ERR_OK;
}

/* ---- the run ---- */

static void add_netif(void)
{
	ip4_addr_t own, mask, none;

	ip4addr_aton(text("address"), &own);
	mask.addr = lwip_htonl((uint32_t)(UINT64_MAX << (32 - number("prefix"))));
	none.addr = 0;
	if (!netif_add(&device.netif, &own, &mask, &none, NULL, init_netif, tcpip_input))
		die("lwIP's netif_add");
	netif_set_default(&device.netif);
	netif_set_up(&device.netif);
	netif_set_link_up(&device.netif);
}

static void listen_there(void)
{
	run.pcb = tcp_new();
	if (!run.pcb || tcp_bind(run.pcb, IP_ADDR_ANY, number("port")) != ERR_OK)
		die("lwIP's tcp_bind");
	run.pcb = tcp_listen(run.pcb);
	tcp_accept(run.pcb, on_accepted);
}

static void connect_there(void *unused)
{
	ip_addr_t peer;

	(void)unused;
	ipaddr_aton(text("peer"), &peer);
	run.pcb = tcp_new();
	if (!run.pcb)
		die("lwIP's tcp_new");
	tcp_err(run.pcb, on_error);
	if (tcp_connect(run.pcb, &peer, number("port"), on_connected) != ERR_OK)
		die("lwIP's tcp_connect");
}

/* Whatever stdin says, with its end the lab is gone. */
static void *watch_stdin(void *unused)
{
	(void)unused;
	while (getchar() != EOF)
		;
	_exit(0);
}

static void start_thread(void *(*work)(void *))
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, work, NULL))
		die("pthread_create");
}

static void report(void)
{
	if (!run.sends)
		count_gap(run.end_ns);
	printf("{\"bytes\": %" PRIu64 ", \"measured_bytes\": %" PRIu64 ", \"verified_bytes\": %" PRIu64
	       ", \"longest_gap_ms\": %.3f, \"errors\": [%s%s%s]}\n",
	       run.bytes, run.measured, run.verified, run.gap_ns / 1e6, run.error[0] ? "\"" : "",
	       run.error, run.error[0] ? "\"" : "");
}

static void initialised(void *done)
{
	sem_post(done);
}

static void prepare(void)
{
	sem_t done;

	make_pattern();
	attach_tap();
	run.sends = !strcmp(text("role"), "send");
	run.begin_ns = number("begin-ns");
	run.end_ns = number("end-ns");
	run.stop_ns = number("stop-ns");
	sem_init(&done, 0, 0);
	tcpip_init(initialised, &done);
	sem_wait(&done);
	LOCK_TCPIP_CORE();
	add_netif();
	if (!run.sends)
		listen_there();
	UNLOCK_TCPIP_CORE();
	start_thread(read_tap);
}

int main(int count, char **values)
{
	(void)count;
	arguments = values + 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	prepare();
	printf("ready\n");
	if (scanf("start %" SCNu64, &run.start_ns) != 1)
		return 1;
	start_thread(watch_stdin);
	wait_until(0);
	if (run.sends)
		tcpip_callback(connect_there, NULL);
	wait_until(run.stop_ns);
	LOCK_TCPIP_CORE();
	report();
	UNLOCK_TCPIP_CORE();
	for (;;)
		pause();
}
