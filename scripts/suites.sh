#!/usr/bin/env bash
# packetdrill suites that others wrote, whole, against the TCP endpoint: a table of what is
# understood and passes. None of them is in this repository; docs/packetdrill.md says where they are
# from. A suite that is absent is named, and is no failure.
#
#   suites.sh [DIR]   DIR, else $SG_SUITES, has checkouts of them at any place, such as
#                     DIR/packetdrill (Google's), DIR/tcp-testsuite (FreeBSD's), DIR/linux; tables of folders, failures
#                     and reasons go to OUT (out/suites)
#
# Fails where a suite has less than AIM percent understood, or less than AIM percent of those
# passed; of a suite with as many scripts as the one below, where one fewer is understood or passes.
# A script of Linux's TCP that fails because it is of another kernel does not count for the second:
# root asks this kernel, which then does at that line what the endpoint does.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

AIM=95
dir=${1:-${SG_SUITES:-}}
OUT=${OUT:-out/suites}

# A line for each: its name; a folder that it has; of what is run what its scripts lie in, relative
# to that; how many there are at the commit that docs/packetdrill.md names, and the least that are
# understood and pass; the options of its own runner.
SUITES=(
	"google|gtests/net/tcp|.|162|157|147|-D TFO_COOKIE=3021b9d889017eeb -D CODE=host_unreachable
		-D CMSG_LEVEL_IP=SOL_IP -D CMSG_TYPE_RECVERR=IP_RECVERR --mtu=1500
		--sysctl=net.ipv4.tcp_rmem=4096_540000_15728640"
	"freebsd|state-event-engine|..|1103|1082|1068|--stack=freebsd9"
	"linux|selftests/net/packetdrill|.|0|0|0|-D TFO_COOKIE=3021b9d889017eeb -D TFO_COOKIE_ZERO=b7c12350a90dc8f5
		-D CMSG_LEVEL_IP=SOL_IP -D CMSG_TYPE_RECVERR=IP_RECVERR"
)

# Only root can ask this kernel.
asked=""
[ "$(id -u)" -eq 0 ] || asked="; root asks this kernel which of them are for another one"
absent=0 run=0 failed=0
rows=()
miss() {
	echo "suites: $*" >&2
	failed=$((failed + 1))
}

# percent PART WHOLE: in tenths, rounded down.
percent() { echo "$((1000 * $1 / ($2 > 0 ? $2 : 1)))"; }
shown() { echo "$(($1 / 10)).$(($1 % 10)) %"; }

# judge NAME SCRIPTS UNDERSTOOD PASSED AS_KERNEL KNOWN LEAST_UNDERSTOOD LEAST_PASSED
# AS_KERNEL: of the understood that fail, those whose kernel is another one.
judge() {
	local name=$1 understood passed rest
	understood=$(percent "$3" "$2") passed=$(percent "$4" "$3") rest=$(percent "$4" "$(($3 - $5))")
	rows+=("| $name | $2 | $3 ($(shown "$understood")) | $4 ($(shown "$passed")) |\
 $5 ($(shown "$rest")) |")
	[ "$understood" -ge $((10 * AIM)) ] || miss "$name: $(shown "$understood") understood, less than $AIM %"
	[ "$rest" -ge $((10 * AIM)) ] || miss "$name: $(shown "$rest") of those passed, less than $AIM %$asked"
	[ "$2" -eq "$6" ] || return 0
	[ "$3" -ge "$7" ] || miss "$name: $3 understood, fewer than $7"
	[ "$4" -ge "$8" ] || miss "$name: $4 passed, fewer than $8"
}

# suite NAME FOLDER BELOW KNOWN LEAST_UNDERSTOOD LEAST_PASSED OPTIONS
suite() {
	local name=$1 place options status=0 scripts understood passed same
	place=$([ -z "$dir" ] || find "$dir" -follow -type d -path "*/$2" -print -quit 2>/dev/null)
	if [ -z "$place" ]; then
		absent=$((absent + 1))
		echo "absent: $name: no folder */$2 below ${dir:-SG_SUITES, which is not set}"
		return
	fi
	run=$((run + 1))
	read -ra options <<<"$(tr -s '\n\t' '  ' <<<"$7")"
	# Values with blanks have underscores here.
	options=("${options[@]//_540000_/ 540000 }")
	[ -n "$asked" ] || [ "$name" = freebsd ] || options+=(--against-kernel)
	"$packetdrill" --table "${options[@]}" "$place/$3" >"$OUT/$name.md" || status=$?
	[ "$status" -le 1 ] || die "$name: packetdrill ended with $status, see above"
	read -r scripts understood passed < <(sed -n 's/^| all | \([0-9]*\) | \([0-9]*\) | \([0-9]*\) .*/\1 \2 \3/p' "$OUT/$name.md")
	same=$(sed -n 's/^\([0-9]*\) of the failed do as this kernel does;.*/\1/p' "$OUT/$name.md")
	judge "$name" "$scripts" "$understood" "$passed" "${same:-0}" "$4" "$5" "$6"
}

packetdrill=${PACKETDRILL:-$SG_TARGET/release/packetdrill}
[ -n "${PACKETDRILL:-}" ] || cargo build --release --locked -q -p sluicegate-packetdrill
mkdir -p "$OUT"
for line in "${SUITES[@]}"; do
	IFS='|' read -rd '' name folder below known understood passed options <<<"$line" || true
	suite "$name" "$folder" "$below" "$known" "$understood" "$passed" "$options"
done
if [ "$run" -gt 0 ]; then
	echo
	echo "| suite | scripts | understood | of these passed | as $(uname -r) (of the rest passed) |"
	echo "|---|---|---|---|---|"
	printf '%s\n' "${rows[@]}"
	echo
	echo "folders, failures and reasons: $OUT/*.md"
fi
echo "$run suites run, $absent absent"
[ "$failed" -eq 0 ]
