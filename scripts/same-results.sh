#!/usr/bin/env bash
# Compares two builds by what they simulate: `results.json` of every scenario must be the same bytes
# but for `conditions` (version, wall-clock time) and for counters of enforcement that are 0 in one
# build and missing in the other. For changes that must not change results.
#
#   same-results.sh OLD NEW [FILE…]   OLD, NEW: two sluicegate binaries, or directories that an
#                                     earlier comparison left; FILE: scenarios, by default all
#
# Leaves what the binaries wrote in out/same-results/{old,new}. Exit code 1: something differs.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

usage="usage: same-results.sh OLD NEW [FILE…]"
old=$(readlink -f "${1:?$usage}")
new=$(readlink -f "${2:?$usage}")
shift 2
cd "$SG_ROOT"
shopt -s extglob
[ $# -gt 0 ] || set -- scenarios/*.toml scenarios/!(lab-only)/*.toml
scripts/setup.sh profile >&2

# simulated BUILD NAME FILE…: prints the directory with the results of a build, run unless BUILD is
# one.
simulated() {
	local build=$1 dir=out/same-results/$2 file
	shift 2
	[ ! -d "$build" ] || { echo "$build"; return; }
	rm -rf "$dir"
	mkdir -p "$dir"
	for file in "$@"; do
		# Exit code 3 is a line of [expect] that does not hold in the short form: no matter here.
		"$build" run "$file" --world sim --short --out "$dir/$(path_of "$file")" >"$dir/log" 2>&1 ||
			[ $? -eq 3 ] || { tail "$dir/log" >&2 && die "$build cannot run $file"; }
	done
	echo "$dir"
}

path_of() {
	local path=${1%.toml}
	echo "${path//\//-}"
}

# results DIR FILE: what is compared.
results() {
	jq --sort-keys 'del(.conditions) | walk(if type == "object" and has("window_lowered") then
		with_entries(select(.value != 0)) else . end)' "$1/$(path_of "$2")/results.json"
}

before=$(simulated "$old" old "$@")
after=$(simulated "$new" new "$@")
differ=0
for file in "$@"; do
	if cmp -s <(results "$before" "$file") <(results "$after" "$file"); then
		echo "same     $file"
	else
		echo "DIFFERS  $file"
		diff <(results "$before" "$file") <(results "$after" "$file") | head -n 6 || true
		differ=$((differ + 1))
	fi
done
echo "$(($# - differ)) the same, $differ differ"
[ "$differ" -eq 0 ]
