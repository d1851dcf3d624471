#!/usr/bin/env bash
# Everything that CI runs, stage by stage; a failed stage does not hide the next.
# Ends with a table of stages and the line "N passed, N failed".
#
# Needs root: kernel programs, namespaces and guests are tested for real.
set -uo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT" || exit 1
shopt -s extglob

FUZZ_SECONDS=${FUZZ_SECONDS:-5}
SCENARIO_LIMIT_S=300
LOGS=$SG_ROOT/out/test
SLUICEGATE=$SG_TARGET/release/sluicegate

# Property tests draw the same cases in every run of a commit, so that one that fails has failed
# because of the change; `make experiments` draws others.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}

# shellcheck source=scripts/nextest.sh
. scripts/nextest.sh
# shellcheck source=scripts/stages.sh
. scripts/stages.sh

# Seconds on two CPUs from a clean checkout with its caches; what takes longer is marked. Stages that
# run beside others are slower than alone, and are no part of the sum.
BUDGET_S=(
	[total]=1200 [setup]=10 [tools]=10 [build]=360 ["crates of others"]=15
	["linux 6.12"]=150 ["foreign programs"]=60 ["guest kernel"]=5 ["fuzz smoke"]=150
	[lint]=120 [tests]=450 [documents]=60 ["simulated scenarios"]=110 ["simulated as the lab is"]=15 ["a sweep of programs"]=10
	["linux 6.1 is refused"]=15 [package]=15 ["stages of tests"]=8 ["packetdrill suites"]=15 ["measuring tests"]=100 ["foreign stacks"]=60
	["nothing left behind"]=10
	["scenario five-stacks"]=58 ["scenario ecn-coexistence"]=62 ["scenario one-sided-beside"]=22
	["scenario policing"]=17 ["scenario feedback-lost"]=28 ["scenario lossless-incast"]=40 ["scenario enforced-by-switch"]=80
	["scenario any-cpu"]=12 ["scenario far-path"]=44
)

# Of the tests of profile `measuring`, those that fail when others use the CPUs in that second, and
# nothing is wrong. They are repeated where others were seen to use them (may_be_noise).
# shellcheck disable=SC2034 # of stages.sh
TIMING_SENSITIVE=(
	two_hosts_fill_their_link ipv6_fills_the_link_too enforcement_keeps_the_queue_short
	switches_in_a_row_and_tenants_side_by_side
	bulk_fills_the_link bulk_keeps_its_rate ping_pong_measures_round_trips trace_offers_its_load
	the_kernel_does_what_the_endpoint_does
)
# shellcheck disable=SC2034
PROFILES=(test measuring)

# again NAME LOG: a measuring test that others have spoilt, by itself, later and later while they do.
again() {
	local name=$1 log=$2 try
	for ((try = 1; try <= TRIES_MAX; try++)); do
		once_more "$name" "$try" grep -q "==> disturbed: $name: .* hypervisor$" "$log"
		log=$2.again
		with_others tests_of measuring -E "test(=$name)" >"$log" 2>&1 && return
		may_be_noise "$log" || break
	done
	cat "$log"
	return 1
}

# measuring_tests LOG: tests that run alone; those that others on the machine have spoilt once more.
# LOG is where the output goes.
measuring_tests() {
	local log=$1 name names
	with_others tests_of measuring && return
	may_be_noise "$log" || return 1
	mapfile -t names < <(failures "$log" | cut -d' ' -f3 | sort -u)
	for name in "${names[@]}"; do again "$name" "$log" || return; done
}

# What this kernel shows, a scenario for each behaviour: a short queue and even shares whatever the
# stack; tenants without ECN beside DCTCP; one-sided flows beside two-sided and unenforced ones;
# a cheat is policed; feedback that stops; lossless guests over converged Ethernet; enforcement by
# the switch, over the emulated fabric; flows whose packets take any CPU; one alone on a far path.
# Variants that no expectation needs are left out. Half of the rates leave CPUs idle enough for a
# machine that others use, too. `make experiments` has every scenario in the lab, in full.
LAB=("five-stacks --rate-scale 0.5 --variant unenforced dctcp enforced" "ecn-coexistence --rate-scale 0.5"
	"one-sided-beside --rate-scale 0.5" policing "feedback-lost --rate-scale 0.5"
	"lossless-incast --rate-scale 0.5" "lab-only/enforced-by-switch --rate-scale 0.5 --variant ebpf switch"
	"lab-only/any-cpu --variant frames" "lab-only/far-path --rate-scale 0.5")
# The delays of a lab, with which scenarios that only `make experiments` has there are simulated.
CALIBRATION=calibrations/two-cpu-vm-busy.toml

scenarios() {
	local words name
	for words in "${LAB[@]}"; do
		read -ra words <<<"$words"
		name=${words[0]##*/}
		stage "scenario $name" measured "scenario $name" timeout --foreground --kill-after=30 "$SCENARIO_LIMIT_S" \
			"$SLUICEGATE" run "scenarios/${words[0]}.toml" --world lab --short --check --out "$LOGS/$name" \
			"${words[@]:1}" || true
	done
}

# The files of LAB that both worlds run.
in_lab() {
	local words
	for words in "${LAB[@]}"; do
		[[ $words == lab-only/* ]] || echo "scenarios/${words%% *}.toml"
	done
}

# Most of the time that all files take, simulated alone: `make seeds` and `make experiments` have
# them. Beside them stay zovn/servers, cee/hotspot-routing, cee/four-paths, fabric/leaf-spine,
# dcvegas/collapse-16, acdc/incast-40 and acdc/incast-47-1500.
LARGE=(zovn/servers-udp fabric/routing fabric/slow-links fabric/conga cee/permutation-routing
	dcvegas/collapse-32 dcvegas/collapse-24 acdc/pressure acdc/incast-47 acdc/incast-32)

# The files that are simulated alone, but for LARGE.
small() {
	local file name
	for file in scenarios/!(lab-only)/*.toml; do
		name=${file#scenarios/}
		[[ " ${LARGE[*]} " == *" ${name%.toml} "* ]] || echo "$file"
	done
}

# simulated DIR FILE… [OPTION…]: short forms with the seeds of their files. `make seeds` and `make
# experiments` have others.
simulated() {
	local out=$1
	shift
	"$SLUICEGATE" run "$@" --short --check --out "$LOGS/$out"
}

# As the lab is: scenarios of both worlds that are not in LAB.
calibrated() {
	local file files=()
	for file in scenarios/*.toml; do
		in_lab | grep -qxF "$file" || files+=("$file")
	done
	simulated calibrated "${files[@]}" --calibration "$CALIBRATION"
}

# Suites of packetdrill scripts that others wrote, where SG_SUITES is a folder that has them.
suites() {
	local name reason
	if [ -z "${SG_SUITES:-}" ]; then
		absent "packetdrill suites" "google, freebsd, linux: SG_SUITES is not set"
		return
	fi
	stage "packetdrill suites" scripts/suites.sh "$SG_SUITES"
	while IFS=: read -r _ name reason; do absent "packetdrill suite$name" "${reason# }"; done < <(
		grep '^absent: ' "$(log_of "packetdrill suites")")
}

# Objects that the kernel still holds, to compare before and after: namespaces, interfaces, pins,
# the sysctl that runs raise, our congestion controls, BPF programs of the types that ours have with
# their maps and links, our processes.
kernel_objects() {
	local name
	{
		ip netns list | cut -d' ' -f1
		ip -o link show | cut -d' ' -f2
		find /sys/fs/bpf -mindepth 1 2>/dev/null
		sed 's/^/netdev_max_backlog /' /proc/sys/net/core/netdev_max_backlog
		# The kernel's own stay when a test has asked for them.
		tr ' ' '\n' </proc/sys/net/ipv4/tcp_available_congestion_control | grep '^sg_'
		bpftool prog show | awk '/^[0-9]+: (sched_cls|struct_ops) / { print "program", $1, $2, $4 }'
		bpftool map show | awk '/^[0-9]+: / && $2 != "lpm_trie" { print "map", $1, $2, $4 }'
		bpftool link show | awk '/^[0-9]+: (tcx|struct_ops) / { print "link", $1, $2 }'
		pgrep -lx 'sluicegate'
		pgrep -l 'linux.uml'
		pgrep -l '^ovs(db-server|-vswitchd)'
		for name in gvisor lwip smoltcp quicgo; do pgrep -lx "$name"; done
	} | sort
}

# A test or run that cleans up after itself leaves nothing that was not there before. The kernel
# frees programs and maps a little after their last user has gone.
nothing_left() {
	local try
	for try in {1..20}; do
		comm -13 "$LOGS/objects-before" <(kernel_objects) >"$LOGS/objects-left"
		[ -s "$LOGS/objects-left" ] || return 0
		[ "$try" -eq 20 ] || sleep 0.5
	done
	cat "$LOGS/objects-left"
	return 1
}

if [ "$(id -u)" -ne 0 ]; then
	echo "error: make test needs root: it loads kernel programs and builds network namespaces." >&2
	echo "       Run it as root (sudo make test); make lint and make fuzz run without." >&2
	echo "0 passed, 1 failed"
	exit 1
fi

# A run that is interrupted cleans up and ends by itself; then nothing else begins.
trap '[ ${#beside[@]} -eq 0 ] || kill "${beside[@]}" 2>/dev/null; exit 130' INT TERM

mkdir -p "$LOGS"
stage "setup" scripts/setup.sh test || finish
stage "tools" scripts/tools.sh || finish
# setup may have installed the first usable cargo and clang
# shellcheck source=scripts/env.sh
. scripts/env.sh
stage "crates of others" scripts/crates-cache.sh restore || true
stage "build" cargo test "${BUILT[@]}" --no-run || finish
# Remains of a run that was killed are none of today's doing.
"$SLUICEGATE" lab clean >/dev/null || true
kernel_objects >"$LOGS/objects-before"

# Nothing here measures: stages run beside one another. Emulation uses its CPUs for minutes, tests
# of the kernel's room mostly wait.
[ "$(uname -m)" != x86_64 ] || begin "linux 6.12" scripts/kernel-test.sh 6.12 verifier
begin "tests" tests_of test
begin "foreign programs" scripts/foreign.sh build
begin "guest kernel" scripts/guest-kernel.sh
stage "stages of tests" scripts/test-stages.sh
suites
stage "lint" scripts/lint.sh
scripts/crates-cache.sh save >"$(log_of "crates of others")" 2>&1 || true
stage -tests "documents" cargo test --release --locked --no-fail-fast --workspace --doc
begin "fuzz smoke" fuzz/run.sh "$FUZZ_SECONDS"
mapfile -t files < <(in_lab && small)
stage "simulated scenarios" simulated sim "${files[@]}"
stage "simulated as the lab is" calibrated
stage "a sweep of programs" "$SLUICEGATE" sweep scenarios/cee/programs-routing.toml --short --repeat 1 --only tree=6 \
	--only program=bt,cg,ft,is,mg --check --out "$LOGS/sweep-programs"
if [ "$(uname -m)" = x86_64 ]; then
	ended "linux 6.12"
	stage "linux 6.1 is refused" scripts/kernel-test.sh 6.1
fi
ended -tests "tests"
stage "package" scripts/test-deb.sh "$SLUICEGATE" "$LOGS/package"
ended "foreign programs"
ended "guest kernel"
ended "fuzz smoke"

# From here on every stage measures, alone.
stage -tests "measuring tests" measuring_tests "$(log_of "measuring tests")"
scenarios
stage "foreign stacks" scripts/foreign.sh "$LOGS" short
stage "nothing left behind" nothing_left
finish
