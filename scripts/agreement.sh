#!/usr/bin/env bash
# Shipped scenarios in short form, in the lab and simulated with a calibration, and how far they
# agree.
#
#   agreement.sh DIR CALIBRATION [FILE…]   DIR gets lab/, sim/, compare.html, compare.json and agreement.md
#
# Of all scenarios (no FILE), if the CPU limited none of them, the tables also become those of
# docs/agreement.md. There a table says how many scenarios agree if they are simulated with other
# seeds, and with the other calibrations of the same kind of machine: OTHERS, else those whose names
# begin as CALIBRATION's does (two minutes each).
#
# SLUICEGATE: the binary, else the one that is built here.
#
# Where DIR/lab already has a scenario it is not run again: remove it to repeat it.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

out=${1:?usage: agreement.sh DIR CALIBRATION [FILE…]}
calibration=${2:?usage: agreement.sh DIR CALIBRATION [FILE…]}
shift 2
files=("$@")
all=false
[ ${#files[@]} -gt 0 ] || files=(scenarios/*.toml) all=true
[ "$(id -u)" -eq 0 ] || die "agreement needs root: its reference are runs on this kernel, in network namespaces (sudo make agreement)"
[ -f "$calibration" ] || die "$calibration: there is no such file; sluicegate lab calibrate --out FILE writes one"

scripts/setup.sh test
. scripts/env.sh
[ -n "${SLUICEGATE:-}" ] || cargo build --release --locked -p sluicegate
sluicegate=${SLUICEGATE:-$SG_TARGET/release/sluicegate}

# A run that is interrupted cleans up and ends by itself; then nothing else begins.
trap 'exit 130' INT TERM

# scale_of DIR: the factor at which the lab had to run a scenario.
scale_of() { sed -n 's/.*"rate_scale": \([0-9.e-]*\).*/\1/p' "$1/results.json" | head -n 1; }

# simulate LAB DIR CALIBRATION [OPTION…]: the lab's experiment, at the rates that it could carry.
simulate() {
	local lab=$1 dir=$2 calibration=$3
	shift 3
	say "$(basename "$lab") simulated"
	"$sluicegate" run "$lab/scenario.toml" --calibration "$calibration" --rate-scale "$(scale_of "$lab")" "$@" --out "$dir/$(basename "$lab")"
}

# agreeing SIM: "23 of 32", the scenarios that agree in everything.
agreeing() { "$sluicegate" compare "$out/lab" "$1" --markdown | sed -n 's/ scenarios agree in everything$//p'; }

# also NAME CALIBRATION SEED [OPTION…]: a row of the table of other simulations.
also() {
	local dir=$out/also/$1 calibration=$2 seed=$3 lab
	shift 3
	for lab in "$out"/lab/*/; do simulate "${lab%/}" "$dir" "$calibration" "$@" >&2; done
	printf '| `%s` | %s | %s |\n' "$calibration" "$seed" "$(agreeing "$dir")"
}

# others: the table.
others() {
	local file seed
	printf '| simulated with | seeds | scenarios that agree in everything |\n|---|---|---|\n'
	printf '| `%s` | the scenarios'"'"' own | %s |\n' "$calibration" "$(agreeing "$out/sim")"
	for seed in 2 3; do also "seed-$seed" "$calibration" "from $seed on" --seed "$seed"; done
	for file in ${OTHERS-"${calibration%-*}"-*.toml}; do
		[ "$file" = "$calibration" ] || [ ! -f "$file" ] || also "$(basename "$file" .toml)" "$file" "the scenarios' own"
	done
}

unusable=()
for file in "${files[@]}"; do
	name=$(basename "$file" .toml)
	lab=$out/lab/$name
	if [ ! -f "$lab/results.json" ]; then
		say "$name in the lab"
		"$sluicegate" run "$file" --world lab --short --out "$lab"
	fi
	if grep -q '"cpu_bound": true' "$lab/results.json"; then
		unusable+=("$name")
		mkdir -p "$out/cpu-bound"
		rm -rf "$out/cpu-bound/$name"
		mv "$lab" "$out/cpu-bound/"
		rm -rf "$out/sim/$name"
		continue
	fi
	simulate "$lab" "$out/sim" "$calibration"
done

say "how far they agree"
"$sluicegate" compare "$out/lab" "$out/sim" --markdown --out "$out" | tee "$out/agreement.md"
if [ ${#unusable[@]} -gt 0 ]; then
	echo "The CPU limited these runs of the lab, which say nothing: ${unusable[*]}. Run again when the machine is idle." >&2
	exit 3
fi
if $all; then
	{
		printf 'Lab: %s, %s CPUs, version %s. Simulated with `%s`.\n\n' "$(uname -sr | cut -d- -f1)" "$(nproc)" "$("$sluicegate" --version | cut -d' ' -f2)" "$calibration"
		cat "$out/agreement.md"
		printf '\n'
		others
	} | scripts/splice.sh docs/agreement.md agreement
	say "the tables are in docs/agreement.md"
fi
