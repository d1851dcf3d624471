#!/usr/bin/env bash
# Profile-guided builds: with counters, then a run that trains, then again with what was counted.
# Simulations take some 20 % less time (docs/performance.md says how much).
#
#   pgo.sh dist              leaves target/dist/sluicegate, trained by short forms of scenarios and by
#                            frames between two guests of the userspace switch
#   pgo.sh bench [CASE…]     runs the simulator's benchmark, trained by other networks and loads
#                            than those with an aim in packets per second
#
# Needs the llvm-profdata of rustc's own LLVM, a component of rustup; a compiler that comes without
# builds without a profile, and a note says so. PGO=no does so in any case.
set -euo pipefail
# Builds run within $(…).
shopt -s inherit_errexit
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

TRAINING_SCENARIOS=(acdc/incast-16 fabric/leaf-spine fabric/slow-links cee/commercial cee/hotspot
	cee/permutation-routing programs/training zovn/desktops)
TRAINING_CASES=(scale-64 scale-1024 commercial routing-flow-hash routing-r3c2 routing-random)

usage="usage: pgo.sh dist|bench [CASE…]"
what=${1:?$usage}
shift
work=$SG_ROOT/target/pgo

# Prints where the llvm-profdata is that reads what this rustc writes; fails when there is none.
profdata() {
	local tool
	tool=$(rustc --print target-libdir)/../bin/llvm-profdata
	[ -x "$tool" ] || { command -v rustup && rustup component add llvm-tools; } >/dev/null 2>&1 || return 1
	[ -x "$tool" ] && echo "$tool"
}

# build DIRECTORY FLAGS: prints the executable. A directory for each kind of build, so that none
# makes cargo forget the others.
build() {
	local kind=(build --profile dist -p sluicegate)
	[ "$what" = dist ] || kind=(bench --no-run -p sluicegate-sim --bench sim)
	RUSTFLAGS="${RUSTFLAGS:-} $2" cargo "${kind[@]}" --locked --target-dir "$work/$1" \
		--message-format=json-render-diagnostics | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

train() { # train EXECUTABLE: runs that count
	local name
	if [ "$what" = bench ]; then
		"$1" "${TRAINING_CASES[@]}" >"$work/said" || die "training failed: $(cat "$work/said")"
		return
	fi
	for name in "${TRAINING_SCENARIOS[@]}"; do
		echo "$name"
		"$1" run "scenarios/$name.toml" --short --threads 1 --out "$work/runs/$name" >"$work/said" 2>&1 ||
			die "training failed: $(cat "$work/said")"
	done
	train_switch "$1"
}

# train_switch EXECUTABLE: the guests of the benchmark of the switch, without root, move frames of
# all lengths through it, with enforcement and without. They take two CPUs.
train_switch() {
	local guests arms=sluicegate,enforcing,lossy
	if [ "$(nproc)" -lt 2 ]; then
		echo "note: one CPU: the userspace switch is not trained"
		return
	fi
	echo "switch"
	guests=$(cargo build --release -p sluicegate-dataplane --bench switch --locked \
		--message-format=json-render-diagnostics | grep '"name":"switch"' |
		sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
	"$guests" --sluicegate "$1" --arms "$arms" --rounds 1 --seconds 0.2 >"$work/said" 2>&1 ||
		die "training failed: $(cat "$work/said")"
}

# Prints the profile's path, which has its contents' sum so that cargo sees a change. Functions that
# training never called are left out: LLVM would make the agent's and the switch's small and slow.
profile() {
	local merge=$1 executable named raw=$work/raw
	say "building with counters" >&2
	executable=$(build counters "-Cprofile-generate=$raw")
	rm -rf "$raw" # what build scripts have counted
	say "training" >&2
	train "$executable" >&2
	"$merge" merge --sparse -o "$work/$what.profdata" "$raw"
	# Those of former calls.
	rm -f "$work/$what"-*.profdata
	named=$work/$what-$(sha256sum <"$work/$what.profdata" | cut -c 1-16).profdata
	mv "$work/$what.profdata" "$named"
	echo "$named"
}

case "$what" in
dist | bench) ;;
*) die "$usage" ;;
esac
flags=
if [ "${PGO:-yes}" = no ]; then
	:
elif merge=$(profdata); then
	flags="-Cprofile-use=$(profile "$merge")"
else
	echo "note: rustc $(rustc --version | cut -d' ' -f2) has no llvm-profdata beside it, so this is built without a profile and" >&2
	echo "      simulates slower; rustup's rustc has one (rustup component add llvm-tools)" >&2
fi
say "building${flags:+ with the profile}" >&2
executable=$(build "$([ -z "$flags" ] && echo plain || echo guided)" "$flags")
if [ "$what" = bench ]; then
	exec "$executable" "$@"
fi
install -D "$executable" target/dist/sluicegate
echo target/dist/sluicegate
