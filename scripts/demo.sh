#!/usr/bin/env bash
# The main job: set up, build, simulate two scenarios, rehearse them on this
# machine's own kernel, and show both side by side.
#
#   demo.sh DIR   where results go
#
# The scenarios run in their short form, which `make test` runs in both worlds, too. A check that
# fails in simulated time is an error. The lab measures this machine as it is: a scenario whose
# expectations do not hold there runs once more, and what then still does not hold is shown; the
# exit code stays 0. `sluicegate run --check` is strict.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

out=${1:?usage: demo.sh DIR}
sluicegate=$SG_TARGET/release/sluicegate
scenarios=(scenarios/five-stacks.toml scenarios/incast-1500.toml)

# Results of the lab that the scenarios do not expect, a line for each scenario.
shown=()

# run_one WORLD FILE [OPTION…]: one scenario, into DIR/WORLD/NAME.
run_one() {
	local world=$1 file=$2
	shift 2
	"$sluicegate" run "$file" --world "$world" --short --out "$out/$world/$(basename "$file" .toml)" "$@"
}

# Simulates; needs no privileges.
simulate() {
	local file
	say "simulating ${scenarios[*]}"
	for file in "${scenarios[@]}"; do run_one sim "$file" --check; done
}

# in_lab FILE: one scenario in the lab; sets `missed`, what `--check` does not accept of it, in one
# line.
in_lab() {
	local status=0 said=$out/lab/said
	mkdir -p "$out/lab"
	{ run_one lab "$1" --check 2>&1 >&3 | tee "$said" >&2 || status=${PIPESTATUS[0]}; } 3>&1
	[ "$status" -eq 0 ] || [ "$status" -eq 3 ] || exit "$status"
	was_disturbed=false
	! disturbed "$said" || was_disturbed=true
	missed=$(not_accepted "$said" | awk '{ printf "%s%s", sep, $0; sep = "; " }')
	rm "$said"
}

# Runs each scenario in the lab, once more where its expectations do not hold and the run says that
# it was disturbed.
rehearse() {
	local file name missed
	say "rehearsing ${scenarios[*]}"
	for file in "${scenarios[@]}"; do
		name=$(basename "$file" .toml)
		in_lab "$file"
		if [ -n "$missed" ] && $was_disturbed; then
			say "$name: not all expectations held, and the run was disturbed, see above; once more"
			in_lab "$file"
		fi
		[ -z "$missed" ] || shown+=("$name: not as expected on this machine: $missed")
	done
}

# The pages that show what was run, and what of it was not as expected.
finish() {
	printf 'reports  %s\n' "$@"
	[ ${#shown[@]} -eq 0 ] || printf '%s\n' "${shown[@]}"
	exit 0
}

if [ "$(id -u)" -ne 0 ]; then
	echo "Without root: the simulation only. The rehearsal loads kernel programs and builds network namespaces." >&2
	command -v cargo >/dev/null || { scripts/setup.sh demo || true; die "cargo ≥ 1.85 is missing; sudo make demo installs it"; }
	say "building (a few minutes the first time)"
	cargo build --release --locked -p sluicegate
	simulate
	"$sluicegate" doctor || true
	echo "for the rehearsal on this kernel: sudo make demo"
	finish "$(readlink -f "$out")"/sim/*/report.html
fi

scripts/setup.sh demo
# setup may have installed the first usable cargo and clang
. scripts/env.sh
say "building (a few minutes the first time)"
scripts/crates-cache.sh restore
cargo build --release --locked -p sluicegate

built=$SECONDS
simulate
say "what this kernel supports"
"$sluicegate" doctor || die "this kernel lacks what the rehearsal needs; each line above says what it costs and how to get it"
rehearse
say "simulated beside rehearsed"
"$sluicegate" compare "$out/lab" "$out/sim" --out "$out"
say "done in $((SECONDS - built)) s after the build"
printf 'results  %s\n' "$out"/{sim,lab}/*/results.json
finish "$(readlink -f "$out")"/{sim,lab}/*/report.html "$(readlink -f "$out/compare.html")"
