#!/usr/bin/env bash
# Shipped scenarios in short form with several seeds: a claim that holds with one seed alone is
# luck.
#
#   seeds.sh DIR [FILE…]   results go to DIR/NUMBER/SCENARIO, what did not hold to DIR/faults; the table has a row for
#                          each scenario and a column for each set of seeds
#
# SEEDS sets of seeds (5). A scenario that repeats its runs N times takes N seeds of each set, so
# that no run is in two.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"
shopt -s extglob

SEEDS=${SEEDS:-5}
SLUICEGATE=${SLUICEGATE:-$SG_TARGET/release/sluicegate}
out=${1:?usage: seeds.sh DIR [FILE…]}
shift
files=("$@")
[ ${#files[@]} -gt 0 ] || files=(scenarios/*.toml scenarios/!(lab-only)/*.toml)

# A run that is interrupted ends by itself; then nothing else begins.
trap 'exit 130' INT TERM

# run SET SEED FILE…: runs the files in short form with this first seed; what did not hold goes to
# DIR/faults/SET.
run() {
	local set=$1 seed=$2 status=0 dir=$out/$1
	shift 2
	# Several files have a directory each.
	[ $# -gt 1 ] || dir+=/$(basename "$1" .toml)
	"$SLUICEGATE" run "$@" --short --check --seed "$seed" --out "$dir" >>"$out/log/$set" 2>"$out/log/$set.said" || status=$?
	[ "$status" -eq 0 ] || [ "$status" -eq 3 ] || { cat "$out/log/$set.said" >&2; exit "$status"; }
	not_accepted "$out/log/$set.said" >>"$out/faults/$set"
}

# repeats_of FILE: how many runs its short form has, told by a run of it.
repeats_of() { sed -n '/^\[/q; s/^repeats = //p' "$out/1/$(basename "$1" .toml)/scenario.toml"; }

rm -rf "$out/faults" "$out/log"
mkdir -p "$out/faults" "$out/log"
say "seeds 1"
run 1 1 "${files[@]}"
declare -A groups=()
for file in "${files[@]}"; do
	repeats=$(repeats_of "$file")
	groups[${repeats:-1}]+="$file"$'\n'
done
for ((set = 2; set <= SEEDS; set++)); do
	say "seeds $set"
	for repeats in "${!groups[@]}"; do
		mapfile -t group <<<"${groups[$repeats]%$'\n'}"
		run "$set" "$(((set - 1) * repeats + 1))" "${group[@]}"
	done
done

say "claims over $SEEDS sets of seeds"
bad=0
for file in "${files[@]}"; do
	name=$(basename "$file" .toml)
	row= held=0
	for ((set = 1; set <= SEEDS; set++)); do
		count=$(grep -c "^$name: " "$out/faults/$set") || true
		if [ "$count" -eq 0 ]; then row+="   ok" held=$((held + 1)); else row+=$(printf '%5s' "-$count"); fi
	done
	printf '%-26s%s  %s of %s\n' "$name" "$row" "$held" "$SEEDS"
	[ "$held" -eq "$SEEDS" ] || bad=$((bad + 1))
done
for ((set = 1; set <= SEEDS; set++)); do
	[ ! -s "$out/faults/$set" ] || sed "s/^/seeds $set: /" "$out/faults/$set"
done
echo "$((${#files[@]} - bad)) of ${#files[@]} scenarios hold with every set of seeds"
[ "$bad" -eq 0 ] || exit 3
