#!/usr/bin/env bash
# Published figures beside ours, on one page: means over seeds 1 to 3 of every scenario that has
# some, and its verdicts.
#
#   published.sh DIR [RESULTS…]   runs go to DIR/seeds/NUMBER/SCENARIO, the page to DIR/published.md; it has RESULTS, such as
#                                 sweeps, too
#
# SEEDS: how many (3). FIRST: the first to run (1), where RESULTS hold the others. FILES: the
# scenarios, else those of the papers, the thesis and Ultra Ethernet. A scenario that repeats its
# runs N times takes N seeds each time, so that no run is in two. A seed takes seven to ten minutes.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

SEEDS=${SEEDS:-3}
SLUICEGATE=${SLUICEGATE:-$SG_TARGET/release/sluicegate}
out=${1:?usage: published.sh DIR [RESULTS…]}
shift
read -ra files <<<"${FILES:-$(echo scenarios/{acdc,dcvegas}/*.toml scenarios/cee/{four-paths,hotspot-root,hotspot-routing,permutation-routing}.toml scenarios/fabric/permutation-1024.toml)}"
trap 'exit 130' INT TERM

results=("$@")
for ((number = ${FIRST:-1}; number <= SEEDS; number++)); do
	say "published figures, seed $number"
	mkdir -p "$out/seeds/$number"
	for file in "${files[@]}"; do
		repeats=$(sed -n '/^\[/q; s/^repeats = //p' "$file")
		seed=$(((number - 1) * ${repeats:-1} + 1))
		# What does not hold with a seed stands on the page.
		status=0
		"$SLUICEGATE" run "$file" --seed "$seed" --out "$out/seeds/$number/$(basename "$file" .toml)" \
			>/dev/null 2>"$out/seeds/$number/said" || status=$?
		[ "$status" -eq 0 ] || { cat "$out/seeds/$number/said" >&2; exit "$status"; }
	done
	results+=("$out/seeds/$number")
done
"$SLUICEGATE" published "${results[@]}" --out "$out"
cat "$out/published.md"
