#!/usr/bin/env bash
# Published figures beside ours, on one page: means over seeds 1 to 3 of every scenario that has
# some, and its verdicts; over seeds 1 to 6 of those with a figure that three leave undecided.
#
#   published.sh DIR [RESULTS…]   runs go to DIR/seeds/NUMBER/SCENARIO, the page to DIR/published.md; it has RESULTS, such as
#                                 sweeps, too, and names the figures of sweeps that are not among these
#
# SEEDS: how many (3). SEEDS_MAX: how many where that is undecided (6). FIRST: the first to run (1),
# where RESULTS hold the others. FILES: the scenarios, else those of the papers, the thesis and Ultra
# Ethernet. A scenario that repeats its runs N times takes N seeds each time, so that no run is in
# two. A seed takes seven to ten minutes.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

SEEDS=${SEEDS:-3}
SEEDS_MAX=${SEEDS_MAX:-6}
SLUICEGATE=${SLUICEGATE:-$SG_TARGET/release/sluicegate}
out=${1:?usage: published.sh DIR [RESULTS…]}
shift
read -ra files <<<"${FILES:-$(echo scenarios/{acdc,dcvegas}/*.toml scenarios/cee/{congestive,four-paths,hotspot-root,hotspot-routing,permutation-routing}.toml scenarios/fabric/permutation-1024.toml)}"
trap 'exit 130' INT TERM
results=("$@")

# seeds FIRST LAST FILE…: runs of each file with these seeds. What does not hold with a seed stands
# on the page.
seeds() {
	local first=$1 last=$2 number file repeats seed status
	shift 2
	for ((number = first; number <= last; number++)); do
		say "published figures, seed $number"
		mkdir -p "$out/seeds/$number"
		for file; do
			repeats=$(sed -n '/^\[/q; s/^repeats = //p' "$file")
			seed=$(((number - 1) * ${repeats:-1} + 1))
			status=0
			"$SLUICEGATE" run "$file" --seed "$seed" --out "$out/seeds/$number/$(basename "$file" .toml)" \
				>/dev/null 2>"$out/seeds/$number/said" || status=$?
			[ "$status" -eq 0 ] || { cat "$out/seeds/$number/said" >&2; exit "$status"; }
		done
		results+=("$out/seeds/$number")
	done
}

# undecided: the files with a figure that the page calls so.
undecided() {
	local file
	for file in "${files[@]}"; do
		! grep -q "^| $(basename "$file" .toml) |.*| undecided |" "$out/published.md" || echo "$file"
	done
}

# left_out: a list of the published figures of sweeps that RESULTS do not have. `false` drops a line.
left_out() {
	local file name lines swept
	mapfile -t swept < <(grep -l '^\[sweep\.published\]' scenarios/*/*.toml)
	for file in "${swept[@]}"; do
		name=$(basename "$file" .toml)
		! grep -q "^| $name |" "$out/published.md" || continue
		lines=$(sed -n '/^\[sweep\.published\]/,/^\[\[*[^s]/s/^\([a-z0-9-]*\) = .* ~ \([-0-9.]*\)".*/\1 \2/p' "$file")
		[ -z "$lines" ] || sed "s/^/$name /; s/ / | /g; s/^/| /; s/$/ |/" <<<"$lines"
	done
}

seeds "${FIRST:-1}" "$SEEDS" "${files[@]}"
"$SLUICEGATE" published "${results[@]}" --out "$out"
mapfile -t open < <(undecided)
if [ ${#open[@]} -gt 0 ] && [ "$SEEDS" -lt "$SEEDS_MAX" ]; then
	seeds "$((SEEDS + 1))" "$SEEDS_MAX" "${open[@]}"
	"$SLUICEGATE" published "${results[@]}" --out "$out"
fi
missing=$(left_out)
[ -z "$missing" ] || {
	printf '\nFigures of sweeps that were not run for this page:\n\n| scenario | claim | published |\n|---|---|---:|\n'
	echo "$missing"
} >>"$out/published.md"
cat "$out/published.md"
