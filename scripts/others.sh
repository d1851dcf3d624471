#!/usr/bin/env bash
# Runs a program and measures what others take of the CPUs meanwhile: processes outside the
# program's session, and the hypervisor (steal). Where that is much in any second, a line says so
# after the program's output, with the name of its test. Tests that measure rates may be repeated
# only after such a line. nextest calls it for each test, and to list them.
#
#   others.sh PROGRAM [--exact NAME] [ARGUMENT…]
set -euo pipefail

# Percent of one CPU, in one second: of steal as for runs of the lab, and of all others together,
# some of which always run for a moment.
STOLEN_ABOVE=5
DISTURBED_ABOVE=30
TICKS_PER_S=$(getconf CLK_TCK)

# ticks SESSION: lines "PID TICKS NAME" of processes that are neither in SESSION nor the kernel's
# own, and of steal.
ticks() {
	local session=$1
	awk '/^cpu / { print "steal", $9, "hypervisor" }' /proc/stat
	# A process may end between the listing and the reading. Its name may have blanks and brackets.
	cat /proc/[0-9]*/stat 2>/dev/null | awk -v session="$session" '
		{ pid = $1; name = $0; sub(/^[0-9]+ \(/, "", name); sub(/\) [^)]*$/, "", name)
		  sub(/^.*\) /, ""); gsub(/[^A-Za-z0-9._-]/, "_", name)
		  if ($4 != session && $2 != 2 && pid != 2) print pid, $12 + $13, name }'
}

# busiest SESSION: samples each second until it is ended; prints "PERCENT STOLEN NAME" for each.
busiest() {
	local before after
	before=$(ticks "$1")
	while sleep 1; do
		after=$(ticks "$1")
		awk -v per_s="$TICKS_PER_S" '
			NR == FNR { before[$1] = $2; next }
			{ used = $2 - before[$1]; all += used; if (used > most) { most = used; name = $3 } }
			$1 == "steal" { stolen = used }
			END { printf "%d %d %s\n", 100 * all / per_s, 100 * stolen / per_s, name }' <(echo "$before") <(echo "$after")
		before=$after
	done
}

# The program, its children and the sampler end with this script.
stop() {
	trap '' INT TERM
	kill "$sampler" 2>/dev/null || true
	# A program that has not become a leader yet has no group.
	kill -- -"$program" 2>/dev/null || kill "$program" 2>/dev/null || true
	wait "$program" || true
	rm -f "$samples"
	exit 130
}

[[ " $* " != *" --list "* ]] || exec "$@"
name=$(basename "$1")
for ((i = 1; i < $#; i++)); do
	[ "${!i}" != --exact ] || { ((i++)) && name=${!i}; }
done
samples=$(mktemp)
# The program leads a session of its own, so that its children are told from others. A script
# without job control has no process groups for which setsid would fork; but it starts programs in
# the background with interrupts ignored.
setsid env --default-signal=INT,QUIT "$@" &
program=$!
busiest "$program" >"$samples" &
sampler=$!
trap stop INT TERM

status=0
wait "$program" || status=$?
kill "$sampler" 2>/dev/null || true
wait "$sampler" 2>/dev/null || true
sort -rn "$samples" | awk -v above="$DISTURBED_ABOVE" -v stolen_above="$STOLEN_ABOVE" -v name="$name" '
	NR == 1 { most = $1; who = $3 }
	$2 > stolen { stolen = $2 }
	END {
		if (stolen > stolen_above) { most = stolen; who = "hypervisor" }
		else if (most <= above) exit
		printf "==> disturbed: %s: others used %d %% of a CPU in one second, most of it %s\n", name, most, who
	}'
rm -f "$samples"
exit "$status"
