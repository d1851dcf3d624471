#!/usr/bin/env bash
# How much memory a large program in GOAL takes as text: writes one, simulates it from its file to
# its end, and prints the time and the peak of memory. Exit code 1: above the limit.
#
#   large-goal.sh [OPERATIONS]   10 000 000 by default, on 2 ranks: each of them
#                                receives, sends and computes in rounds, every operation with a
#                                label and with requirements
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

# Of the peak, in kB.
LIMIT_KB=${LIMIT_KB:-4000000}
SLUICEGATE=${SLUICEGATE:-$SG_TARGET/release/sluicegate}

operations=${1:-10000000}
ranks=2
scripts/setup.sh profile >&2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

say "a text of $operations operations"
awk -v ranks="$ranks" -v operations="$operations" 'BEGIN {
	print "num_ranks", ranks
	rounds = operations / ranks / 3
	for (rank = 0; rank < ranks; rank++) {
		print "rank", rank, "{"
		left = (rank + ranks - 1) % ranks; right = (rank + 1) % ranks
		for (round = 0; round < rounds; round++) {
			receive = 3 * round; send = receive + 1; work = receive + 2; before = receive - 1
			printf "l%d: recv 100b from %d tag 1\n", receive, left
			printf "l%d: send 100b to %d tag 1\n", send, right
			printf "l%d: calc 100\n", work
			printf "l%d requires l%d\nl%d requires l%d\n", work, receive, work, send
			if (round) printf "l%d requires l%d\nl%d requires l%d\n", receive, before, send, before
		}
		print "}"
	}
}' >"$dir/large.goal"
cat >"$dir/large.toml" <<-TOML
	warmup = "0s"
	duration = "1000s"
	[network]
	topology = "crossbar"
	hosts = $ranks
	rate = "100Gbit"
	[traffic.all]
	kind = "program"
	goal = "large.goal"
TOML
say "$(du -h "$dir/large.goal" | cut -f 1) to simulate"
/usr/bin/time -f '%M %e' -o "$dir/peak" "$SLUICEGATE" run "$dir/large.toml" --out "$dir/out" >"$dir/log" 2>&1 ||
	{ cat "$dir/log" >&2 && die "the run failed"; }
read -r peak_kb seconds <"$dir/peak"
ended=$(grep -o '"ended": [0-9]*' "$dir/out/results.json" | head -n 1 | cut -d ' ' -f 2)
echo "$ended operations ended: $((peak_kb / 1000)) MB at most, $seconds s"
[ "$ended" -ge "$operations" ] || die "not all operations have ended"
[ "$peak_kb" -le "$LIMIT_KB" ] || die "above $((LIMIT_KB / 1000)) MB"
