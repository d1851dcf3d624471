#!/usr/bin/env bash
# Instructions of a hop under routing schemes, counted by callgrind, beside those under D-mod-k:
# unlike times they are the same on a machine that others use.
#
#   instructions.sh BINARY [SCHEME…]   BINARY: the benchmark, as `cargo bench --locked
#                                      -p sluicegate-sim --bench sim --no-run` names it; SCHEME: by
#                                      default all
#
# A line for each scheme: instructions of a hop and their ratio to D-mod-k's, on plain Ethernet and
# on converged Ethernet, for datagrams and for TCP at 500 and at 6000 Mb/s of 10 Gb/s.
set -euo pipefail

usage="usage: instructions.sh BINARY [SCHEME…]"
binary=$(readlink -f "${1:?$usage}")
shift
schemes=${*:-s-mod-k flow-hash plb flowlet conga drill packet-hash spray reps random
	switch-adaptive r2c2 r3c2}
"$(dirname "${BASH_SOURCE[0]}")/../../scripts/setup.sh" profile >&2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# count NETWORK: prints the instructions of a hop.
count() {
	local hops instructions
	# The variable keeps the benchmark from starting another process.
	hops=$(GLIBC_TUNABLES=glibc.malloc.hugetlb=1 valgrind --tool=callgrind \
		--toggle-collect='sim::Timed*run_until' --callgrind-out-file="$scratch/out" \
		"$binary" "hops,$1" 2>"$scratch/log" |
		sed -n 's/.*: \([0-9]*\) hops$/\1/p')
	instructions=$(sed -n 's/.*Collected : \([0-9]*\).*/\1/p' "$scratch/log")
	[ -n "$hops" ] && [ -n "$instructions" ] || { cat "$scratch/log" >&2 && exit 1; }
	echo $((instructions / hops))
}

loads="datagrams,500 datagrams,6000 tcp,500 tcp,6000"
networks="${loads//datagrams,/plain,datagrams,}"
networks="${networks//tcp,/plain,tcp,}"
networks="$networks ${networks//plain,/converged,}"
declare -A fixed
printf '%-16s' ''
for network in $networks; do
	printf '%26s' "$network"
	fixed[$network]=$(count "$network,d-mod-k")
done
printf '\n%-16s' d-mod-k
for network in $networks; do printf '%26s' "${fixed[$network]}"; done
echo
for scheme in $schemes; do
	printf '%-16s' "$scheme"
	for network in $networks; do
		case $network,$scheme in
		converged*,conga | plain*,switch-adaptive | plain*,r2c2 | plain*,r3c2) printf '%26s' - ;;
		*)
			own=$(count "$network,$scheme")
			printf '%20s' "$own"
			awk -v own="$own" -v fixed="${fixed[$network]}" 'BEGIN { printf "%6.2f", own / fixed }'
			;;
		esac
	done
	echo
done
