#!/usr/bin/env bash
# Every scenario in full length with its expectations: all of them simulated, the sweeps of those
# that have axes, the simulator against theory, short forms with several seeds, tests without a
# kernel with other cases than those of `make test`, and with root the scenarios that a lab carries
# in the lab too, both worlds compared, TCP of other makes under enforcement, and all tests of kernel
# programs on the oldest supported kernel. Ends with what half and double of parameters change, and
# the page of published figures over seeds 1 to 3 and the sweeps.
#
#   experiments.sh DIR   results go to DIR/WORLD/SCENARIO and DIR/sweep/SCENARIO, the comparison to DIR/compare.html,
#                        figures of other makes to DIR/foreign.json, what half and double of parameters change to
#                        DIR/parameters, published figures beside ours to DIR/published.md
set -uo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT" || exit 1

# Ten million frames of a hostile tenant, its peer and strangers, and more.
HOSTILE_SECONDS=${HOSTILE_SECONDS:-600}
# Inputs of hostile guests and of hostile frontends at the userspace switch.
RING_INPUTS=${RING_INPUTS:-10000000}
MESSAGE_INPUTS=${MESSAGE_INPUTS:-10000000}

out=${1:?usage: experiments.sh DIR}
sluicegate=$SG_TARGET/release/sluicegate
root=false
[ "$(id -u)" -ne 0 ] || root=true

if $root; then
	scripts/setup.sh test || exit 1
	# setup may have installed the first usable cargo and clang
	. scripts/env.sh
else
	command -v cargo >/dev/null || die "cargo ≥ 1.$SG_RUST_MINOR is missing; sudo make experiments installs it"
fi
scripts/tools.sh || exit 1
# shellcheck source=scripts/nextest.sh
. scripts/nextest.sh
cargo build --release --locked -p sluicegate || exit 1

# A run that is interrupted cleans up and ends by itself; then nothing else begins.
trap 'exit 130' INT TERM

failed=0
rows=()
row() { rows+=("$(printf '%-26s %-10s %-7s %9s %7s' "$@")"); }

# verdict STATUS: the word for it; what is not ok counts.
verdict() {
	if [ "$1" -eq 0 ]; then word=ok; else word=FAILED failed=$((failed + 1)); fi
}

# held FILE: "7/8", lines of [expect] or [sweep.expect] that held and all; "-" without results.
held() {
	[ -f "$1" ] || { echo -; return; }
	# Deeper are the cells for which a line was looked at.
	echo "$(grep -c '^      "held": true' "$1")/$(grep -c '^      "held":' "$1")"
}

# experiment WORLD FILE [OPTION…]: runs it into DIR/WORLD/NAME and notes what became of it.
experiment() {
	local world=$1 file=$2 name start=$SECONDS status=0 results word
	shift 2
	name=$(basename "$file" .toml)
	results=$out/$world/$name/results.json
	say "$name, $world"
	# The results of a former run are not this one's.
	rm -f "$results"
	"$sluicegate" run "$file" --world "${world%-*}" --check --out "${results%/*}" "$@" || status=$?
	verdict "$status"
	row "$name" "$world" "$(held "$results")" "$((SECONDS - start))" "$word"
}

# swept FILE: all cells of a scenario's axes, into DIR/sweep/NAME, which keeps what has been run.
swept() {
	local name start=$SECONDS status=0 results word
	name=$(basename "$1" .toml)
	results=$out/sweep/$name/sweep.json
	say "$name, sweep"
	rm -f "$results"
	"$sluicegate" sweep "$1" --check --out "${results%/*}" || status=$?
	verdict "$status"
	row "$name" sweep "$(held "$results")" "$((SECONDS - start))" "$word"
}

# stage NAME WORLD COMMAND…: anything else.
stage() {
	local name=$1 world=$2 start=$SECONDS status=0 word
	shift 2
	say "$name"
	"$@" || status=$?
	verdict "$status"
	row "$name" "$world" - "$((SECONDS - start))" "$word"
}

# beside FILE: what the simulator says of a run in the lab. A lab that had to run slower is
# predicted at its rates.
beside() {
	local name scale
	name=$(basename "$1" .toml)
	scale=$(sed -n 's/^ *"rate_scale": \([0-9.]*\),*$/\1/p' "$out/lab/$name/results.json" | head -n 1)
	case $scale in
	'') return ;;
	1 | 1.0) cp -r "$out/sim/$name" "$out/sim-beside/" ;;
	*) experiment sim-beside "$1" --rate-scale "$scale" ;;
	esac
}

# The command for installing simulates the same bytes as the one that everything here runs.
profile_changes_nothing() {
	scripts/pgo.sh dist &&
		scripts/same-results.sh "$sluicegate" target/dist/sluicegate scenarios/*.toml scenarios/{fabric,cee,programs}/*.toml
}

# In `make test` agents are killed five times.
killed_agents() { SG_KILLS=20 tests_of default -E 'test(=lives::killed_agents_interrupt_nothing)'; }

shopt -s extglob
for file in scenarios/*.toml scenarios/!(lab-only)/*.toml; do
	experiment sim "$file"
done
# Programs that the sweeps of programs have beside skeletons; the scenarios name this place.
stage "recorded programs" sim scripts/record-programs.sh out/recorded
for file in scenarios/cee/commercial{,-udp,-red}.toml scenarios/cee/programs{,-routing}.toml scenarios/cee/hotspot-placements.toml scenarios/zovn/{racks,laptops,desktops,servers}.toml; do
	swept "$file"
done
[ "$(uname -m)" != x86_64 ] || ! $root || stage "linux 6.12" kernel scripts/kernel-test.sh 6.12
stage "numbered frames" switch scripts/frames.sh
! $root || stage "libvirt" switch scripts/try-libvirt.sh
! $root || stage "service" switch scripts/try-service.sh
! $root || stage "killed agents" kernel killed_agents
! $root || stage "long tests" all tests_of long
! $root || stage "head of line" switch tests_of default --run-ignored only -E 'test(=head_of_line::goodput_beside_entries_that_wait)'
stage "property tests" all scripts/properties.sh
stage "a profile" sim profile_changes_nothing
stage "hostile frames" core fuzz/run.sh "$HOSTILE_SECONDS" hostile
stage "hostile guests" switch env INPUTS="$RING_INPUTS" fuzz/run.sh 0 rings
stage "hostile frontends" switch env INPUTS="$MESSAGE_INPUTS" fuzz/run.sh 0 messages
stage "hostile peers" switch env INPUTS="$RING_INPUTS" fuzz/run.sh 0 cables
stage "seeds" sim scripts/seeds.sh "$out/seeds"
stage "theory" sim cargo test --release --locked -q -p sluicegate-sim --test all -- theory::
stage "far-paths" sim cargo test --release --locked -q -p sluicegate-sim --test all -- far_paths:: --ignored --nocapture
stage "large program" sim scripts/large-goal.sh
if $root; then
	stage "guest kernel" lab scripts/guest-kernel.sh
	for file in scenarios/*.toml scenarios/lab-only/*.toml; do
		experiment lab "$file"
	done
	rm -rf "${out:?}/sim-beside"
	mkdir -p "$out/sim-beside"
	for file in scenarios/*.toml; do
		beside "$file"
	done
	# How far they agree is told, in docs/agreement.md too; it is no expectation of a scenario.
	stage "foreign stacks" lab scripts/foreign.sh "$out"
	stage "lab beside sim" both "$sluicegate" compare "$out/lab" "$out/sim-beside" --out "$out"
fi

stage "half and double" sim scripts/parameters.sh "$out/parameters"

stage "published figures" sim env FIRST=2 scripts/published.sh "$out" "$out/sim" "$out/sweep"

say "experiments"
printf '%-26s %-10s %-7s %9s %7s\n' scenario world held seconds verdict
printf '%s\n' "${rows[@]}"
$root || echo "Without root: left out are the lab and its comparison with the simulator (sudo make experiments)."
echo "$((${#rows[@]} - failed)) passed, $failed failed, $SECONDS s"
[ "$failed" -eq 0 ]
