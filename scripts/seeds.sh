#!/usr/bin/env bash
# Shipped scenarios in short form with seeds that nobody chose: a claim that holds with the seeds that
# its author looked at may be luck.
#
#   seeds.sh DIR [FILE…]   results go to DIR/SEED/SCENARIO, what did not hold to DIR/faults; the table has a row for
#                          each scenario and a column for each set of seeds
#
# SEEDS sets of seeds (5) are drawn, and printed. SETS="SEED…" repeats those of an earlier run. A
# scenario that repeats its runs N times takes SEED to SEED + N - 1.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"
shopt -s extglob

read -ra sets <<<"${SETS:-$(shuf -i 1-1000000000 -n "${SEEDS:-5}" | tr '\n' ' ')}"
SLUICEGATE=${SLUICEGATE:-$SG_TARGET/release/sluicegate}
out=${1:?usage: seeds.sh DIR [FILE…]}
shift
files=("$@")
[ ${#files[@]} -gt 0 ] || files=(scenarios/*.toml scenarios/!(lab-only)/*.toml)

# A run that is interrupted ends by itself; then nothing else begins.
trap 'exit 130' INT TERM

# run SEED: all files in short form with this first seed; what did not hold goes to DIR/faults/SEED.
run() {
	local seed=$1 status=0 dir=$out/$1
	# Several files have a directory each.
	[ ${#files[@]} -gt 1 ] || dir+=/$(basename "${files[0]}" .toml)
	"$SLUICEGATE" run "${files[@]}" --short --check --seed "$seed" --out "$dir" >"$out/log/$seed" 2>"$out/log/$seed.said" || status=$?
	[ "$status" -eq 0 ] || [ "$status" -eq 3 ] || { cat "$out/log/$seed.said" >&2; exit "$status"; }
	not_accepted "$out/log/$seed.said" >"$out/faults/$seed"
}

rm -rf "$out/faults" "$out/log"
mkdir -p "$out/faults" "$out/log"
say "sets of seeds, to be repeated with SETS=\"${sets[*]}\""
for seed in "${sets[@]}"; do
	say "seed $seed"
	run "$seed"
done

say "claims over ${#sets[@]} sets of seeds: ${sets[*]}"
bad=0
for file in "${files[@]}"; do
	name=$(basename "$file" .toml)
	row= held=0
	for seed in "${sets[@]}"; do
		count=$(grep -c "^$name: " "$out/faults/$seed") || true
		if [ "$count" -eq 0 ]; then row+="   ok" held=$((held + 1)); else row+=$(printf '%5s' "-$count"); fi
	done
	printf '%-26s%s  %s of %s\n' "$name" "$row" "$held" "${#sets[@]}"
	[ "$held" -eq "${#sets[@]}" ] || bad=$((bad + 1))
done
for seed in "${sets[@]}"; do
	[ ! -s "$out/faults/$seed" ] || sed "s/^/seed $seed: /" "$out/faults/$seed"
done
echo "$((${#files[@]} - bad)) of ${#files[@]} scenarios hold with every set of seeds"
[ "$bad" -eq 0 ] || exit 3
