#!/bin/busybox sh
# shellcheck shell=dash
# Process 1 of the machines that kernel-test.sh boots: runs what TESTS (of the kernel's command
# line) names, says how it went, switches off.

# Of the agent's tests, what says nothing of a kernel and needs much beside it.
SKIPPED=wireshark_reads_the_feedback_as_accurate_ecn

failed=0

# wrong WHAT: the machine goes on, and does not say at its end that all is well.
wrong() {
	failed=1
	echo "error: $1"
}

# refused WHAT COMMAND…: fails with 1, and says which kernel to install.
refused() {
	what=$1
	shift
	timeout 60 "$@" >/tmp/said 2>&1
	code=$?
	cat /tmp/said
	echo "$what: exit code $code"
	[ "$code" -eq 1 ] && grep -q 'Linux 6.12 or newer' /tmp/said && grep -q 'linux-image-cloud-amd64' /tmp/said && return
	failed=1
	echo "$what: FAILED: it should exit with 1 and say which kernel to install"
}

# nothing_left: of the agent, in the kernel.
nothing_left() {
	{
		mount | grep bpf
		find /sys/fs/bpf -mindepth 1
		bpftool prog show
		bpftool map show
		/tools/tc qdisc show dev tenant | grep -v noqueue
	} >/tmp/left 2>&1
	[ -s /tmp/left ] || return
	failed=1
	echo "FAILED: left behind:"
	cat /tmp/left
}

# A kernel that is too old: doctor and agent say so.
refusal() {
	refused doctor sluicegate doctor
	refused agent sluicegate agent --policy /tmp/policy.toml --interface tenant
	nothing_left
}

# One that is not: they say so, the agent begins and ends.
acceptance() {
	sluicegate doctor || wrong "doctor objects to this kernel"
	sluicegate agent --policy /tmp/policy.toml --interface tenant --bpffs /run/bpf >/tmp/said 2>&1 &
	agent=$!
	tries=0
	until grep -q 'enforcing; stop' /tmp/said || [ "$tries" -eq 300 ]; do
		sleep 0.2
		tries=$((tries + 1))
	done
	kill -TERM "$agent"
	wait "$agent" || wrong "the agent exits with an error"
	cat /tmp/said
	grep -q 'nothing is enforced any more' /tmp/said || wrong "the agent does not say that it has ended"
	umount /run/bpf
	nothing_left
}

# tests PROGRAM PATTERN: those of its tests whose whole names match; there has to be one.
tests() {
	names=$("$1" --list | sed -n 's/: test$//p' | grep -xE "$2" | grep -v "$SKIPPED")
	[ -n "$names" ] || wrong "$1 has no test $2"
	# shellcheck disable=SC2086 # a name each
	[ -z "$names" ] || "$1" --test-threads=1 --exact $names || failed=1
}

/bin/busybox --install -s /bin
# The shell takes its own applets for ip and tc unless it is told which.
export PATH=/tools:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
ln -s /run /var/run
/tools/ip link set lo up
/tools/ip link add tenant type veth peer name peer
printf '[[rule]]\nmode = "enforce"\n' >/tmp/policy.toml

for name in $(echo "$TESTS" | tr , ' '); do
	echo "$name at $(cut -d' ' -f1 /proc/uptime) s"
	case $name in
	refusal | acceptance) $name ;;
	*/*) tests "/tests/${name%/*}-all" "${name#*/}::.*" ;;
	*:*) tests "/tests/${name%%:*}-all" "${name#*:}" ;;
	*) tests "/tests/$name" ".*" ;;
	esac
done
echo "end at $(cut -d' ' -f1 /proc/uptime) s"
dmesg | grep -E 'WARNING:|BUG:' && failed=1
[ "$failed" -eq 0 ] && echo "guest: all is well"
poweroff -f
