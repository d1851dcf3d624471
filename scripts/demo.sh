#!/usr/bin/env bash
# The main job: set up, build, simulate two scenarios, rehearse them on this
# machine's own kernel, and show both side by side.
#
#   demo.sh DIR   where results go
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

out=${1:?usage: demo.sh DIR}
sluicegate=target/release/sluicegate
scenarios=(scenarios/five-stacks.toml scenarios/incast-1500.toml)

missed=()

# run_in WORLD: runs the scenarios there and remembers whether they missed what they expect (exit code 3).
run_in() {
	local code=0
	"$sluicegate" run "${scenarios[@]}" --world "$1" --check --out "$out/$1" || code=$?
	case $code in
	0) ;;
	3) missed+=("$1") ;;
	*) exit "$code" ;;
	esac
}

# Simulates; needs no privileges.
simulate() {
	say "simulating ${scenarios[*]}"
	run_in sim
}

# A demo whose results are not what its own scenarios expect says so, below its reports.
finish() {
	[ ${#missed[@]} -eq 0 ] && exit 0
	echo "The demo missed what its scenarios expect, in: ${missed[*]}. Lines \"check failed\" above say what." >&2
	echo "In the lab a machine that others use at the same time is the usual reason: run it again when it is idle." >&2
	exit 3
}

if [ "$(id -u)" -ne 0 ]; then
	echo "Without root: the simulation only. The rehearsal loads kernel programs and builds network namespaces." >&2
	command -v cargo >/dev/null || { scripts/setup.sh demo || true; die "cargo ≥ 1.85 is missing; sudo make demo installs it"; }
	say "building (a few minutes the first time)"
	cargo build --release --locked -p sluicegate
	simulate
	"$sluicegate" doctor || true
	echo "report   $(readlink -f "$out/sim/report.html")"
	echo "for the rehearsal on this kernel: sudo make demo"
	finish
fi

scripts/setup.sh demo
# setup may have installed the first usable cargo and clang
. scripts/env.sh
say "building (a few minutes the first time)"
cargo build --release --locked -p sluicegate

built=$SECONDS
simulate
say "what this kernel supports"
"$sluicegate" doctor || die "this kernel lacks what the rehearsal needs; each line above says what it costs and how to get it"

say "rehearsing ${scenarios[*]}"
run_in lab
say "simulated beside rehearsed"
"$sluicegate" compare "$out/lab" "$out/sim" --out "$out"
say "done in $((SECONDS - built)) s after the build"
printf 'results  %s\n' "$out"/{sim,lab}/*/results.json
echo "reports  $(readlink -f "$out/lab/report.html") $(readlink -f "$out/sim/report.html") $(readlink -f "$out/compare.html")"
finish
