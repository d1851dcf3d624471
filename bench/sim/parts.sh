#!/usr/bin/env bash
# What the instructions of a hop are spent on, and how often what costs them happens: separates the
# code of a routing scheme from the work that the scheme makes elsewhere.
#
#   parts.sh BINARY NETWORK…   BINARY: as for instructions.sh; NETWORK: FABRIC,LOAD,MBPS,SCHEME,
#                              for example converged,tcp,500,spray
#
# A line for each network. Instructions of a hop: all; `choice`, the routing scheme with the path
# value; `order`, resequencing at the receiving adapter; `queue`, frames that have to wait, on
# converged Ethernet; `react`, notifications, limiters and pauses; `tcp`, both ends; `rest`. Then
# how often in 1000 hops: `waits`, a frame does not leave at once (converged Ethernet); `early`, one
# arrives at its adapter before another (likewise); `told`, a notification arrives; `gaps`, a
# segment joins TCP's queue for order. Code that the compiler has inlined counts by its file, other
# code by its function.
set -euo pipefail

usage="usage: parts.sh BINARY NETWORK…"
binary=$(readlink -f "${1:?$usage}")
shift
[ $# -gt 0 ] || { echo "$usage" >&2 && exit 2; }
"$(dirname "${BASH_SOURCE[0]}")/../../scripts/setup.sh" profile >&2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# count NETWORK: prints its line.
count() {
	local hops
	# The variable keeps the benchmark from starting another process.
	hops=$(GLIBC_TUNABLES=glibc.malloc.hugetlb=1 valgrind --tool=callgrind \
		--toggle-collect='sim::Timed*run_until' --callgrind-out-file="$scratch/out" \
		"$binary" "hops,$1" 2>"$scratch/log" |
		sed -n 's/.*: \([0-9]*\) hops$/\1/p')
	[ -n "$hops" ] || { cat "$scratch/log" >&2 && exit 1; }
	awk -v hops="$hops" -v network="$1" -f - "$scratch/out" <<'AWK'
# The name behind `fn=(3) name`; later lines have the number only.
function name(names, text,    id) {
	id = substr(text, 1, index(text, ")"))
	if (length(text) > length(id)) names[id] = substr(text, length(id) + 2)
	return names[id]
}
function part_of(fn, file) {
	if (fn ~ /sluicegate_tcp|^sg_/) return "tcp"
	if (fn ~ /receive_in_order|[Rr]esequenc/ || file ~ /resequence/) return "order"
	if (fn ~ /routing::|net::route::|load_bytes|backlog_bytes|waiting_bytes/) return "choice"
	if (file ~ /fabric\/src\/routing|net\/route\.rs/) return "choice"
	if (fn ~ /::cee::|[Cc]onverged/) {
		if (fn ~ /depart_at_rate|Pace|limited_ps|absorb|notified|flow_control|qcn|Adapter::list/)
			return "react"
		if (fn ~ /forward_behind|send_late|admit|Cee>::(start|kick|release)|::expect|ets::/)
			return "queue"
		if (fn ~ /has_no_room|keep_most|catch_up_switch/) return "queue"
	}
	if (file ~ /tcp\/src/) return "tcp"
	return "rest"
}
/^f[lie]=/ { file = name(files, substr($0, 4)); next }
/^fn=/ { fn = name(functions, substr($0, 4)); next }
/^cf[li]=/ { name(files, substr($0, 5)); next }
/^cfn=/ { called = name(functions, substr($0, 5)); next }
/^calls=/ {
	calls = substr($1, 7)
	if (called ~ /forward_behind/) often["waits"] += calls
	if (called ~ /Resequencer<T>::place/) often["early"] += calls
	if (called ~ /::absorb/) often["told"] += calls
	if (called ~ /Receiver::queue/) often["gaps"] += calls
	inclusive = 1
	next
}
/^[-+*0-9]/ && NF == 2 {
	if (!inclusive) { parts[part_of(fn, file)] += $2; all += $2 }
	inclusive = 0
}
END {
	printf "%-34s%6.0f", network, all / hops
	split("choice order queue react tcp rest", columns)
	for (at = 1; at <= 6; at++) printf "%7.0f", parts[columns[at]] / hops
	split("waits early told gaps", columns)
	for (at = 1; at <= 4; at++) printf "%7.1f", 1000 * often[columns[at]] / hops
	printf "\n"
}
AWK
}

printf '%-34s%6s' 'instructions of a hop' all
printf '%7s' choice order queue react tcp rest
printf '%7s' waits early told gaps
echo
for network in "$@"; do count "$network"; done
