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

FUZZ_SECONDS=${FUZZ_SECONDS:-15}
SCENARIO_LIMIT_S=900
SHOWN_LINES=150
REPEATED_LINES=12
LAST_LINES=3
LOGS=$SG_ROOT/out/test
SLUICEGATE=$SG_ROOT/target/release/sluicegate

# Rooms whose tests load kernel programs or build networks: one test at a time.
EXCLUSIVE=(-p sluicegate-agent -p sluicegate-labkit -p sluicegate-lab -p sluicegate)
PARALLEL=(-p sluicegate-core -p sluicegate-config -p sluicegate-policy -p sluicegate-scenario
	-p sluicegate-report -p sluicegate-tcp -p sluicegate-packetdrill -p sluicegate-vswitch -p sluicegate-fabric
	-p sluicegate-apps -p sluicegate-sim)

passed=0 failed=0 skipped=0
rows=() bad_stages=()

row() { rows+=("$(printf '%-34s %-6s %5s s %s' "$1" "$2" "$3" "${4-}")"); }

AGAIN="==> did not pass; once more"

log_of() { echo "$LOGS/${1//[^a-z0-9]/-}.log"; }

# shown_if_bad NAME VERDICT: a stage that passes keeps its output in its log; one that does not shows how it ended.
shown_if_bad() {
	[ "$2" = ok ] && return
	bad_stages+=("$1")
	tail -n "$SHOWN_LINES" "$(log_of "$1")"
	say "$1: FAILED; all of it in ${LOGS#"$SG_ROOT"/}/$(basename "$(log_of "$1")")"
}

# counted NAME STATUS SECONDS: a stage that has ended is one check.
counted() {
	local verdict=ok
	if [ "$2" -eq 0 ]; then
		passed=$((passed + 1))
	else
		verdict=FAILED
		failed=$((failed + 1))
	fi
	shown_if_bad "$1" "$verdict"
	row "$1" "$verdict" "$3" "$(tries "$(log_of "$1")")"
	[ "$verdict" = ok ]
}

# stage NAME COMMAND…: runs it with its output in a log.
stage() {
	local name=$1 start=$SECONDS status=0
	shift
	say "$name"
	"$@" >"$(log_of "$name")" 2>&1 || status=$?
	counted "$name" "$status" "$((SECONDS - start))"
}

# begin NAME COMMAND…: a stage beside those that follow; `ended NAME` waits for it. Not for what measures.
declare -A beside=()
begin() {
	local name=$1 log
	log=$(log_of "$name")
	shift
	say "$name (beside the next)"
	{
		local start=$SECONDS status=0
		"$@" >"$log" 2>&1 || status=$?
		echo "$status $((SECONDS - start))" >"$log.status"
	} &
	beside[$name]=$!
}

ended() {
	local status seconds
	wait "${beside[$1]}"
	read -r status seconds <"$(log_of "$1").status"
	counted "$1" "$status" "$seconds"
}

# tries LOG: how often it took, where once was not enough.
tries() {
	local again
	again=$(grep -cx "$AGAIN" "$1")
	[ "$again" -eq 0 ] || echo "(try $((again + 1)))"
}

sum_of() { # sum_of WORD LOG: adds up "N WORD" in cargo's result lines
	sed -n "s/^test result:.* \([0-9]*\) $1.*/\1/p" "$2" | awk '{ n += $1 } END { print n + 0 }'
}

# failures LOG: below each "failures:" that is a list of names, these names; a line "list" before each list.
failures() {
	awk '/^failures:$/ { on = 1; next }
		on && /^    [A-Za-z0-9_:]+$/ { if (on++ == 1) print "list"; print $1; next }
		NF { on = 0 }' "$1"
}

# failed_targets LOG: how many test programs, documents' tests included, cargo says have failed, for whatever reason.
failed_targets() { awk '/^error: [0-9]+ targets? failed:$/ { on = 1; next } on && /^    `/ { n++; next } { on = 0 } END { print n + 0 }' "$1"; }

# Tests that measure rates, queues or delays on live links: when others use the CPUs in that second they fail
# and nothing is wrong. All others hold on any machine, so that one that fails has failed.
TIMING_SENSITIVE=(
	two_hosts_fill_their_link ipv6_fills_the_link_too drop_tail_drops_and_nothing_else_does
	a_marking_switch_marks_ecn_and_drops_the_rest enforcement_keeps_the_queue_short
	hosts_can_be_detached_while_it_runs bleaching_hides_marks red_marks_early
	switches_in_a_row_and_tenants_side_by_side
	guests_speak_dctcp_with_the_real_module guest_receives_and_answers
	bulk_fills_the_link bulk_keeps_its_rate bulk_and_probe_speak_ipv6 ping_pong_measures_round_trips
	trace_offers_its_load incast_counts_rounds_and_answers messages_complete_one_by_one
	shuffle_goes_round_its_peers vegas_carries_data
	red_spaces_its_marks dctcp_reacts_to_marks_and_loses_nothing
	dcvegas_keeps_its_queue_below_the_marking_threshold the_tenants_stack_obeys_the_enforced_window
	real_sack_on_a_lossy_link_is_understood a_side_that_detaches_is_noticed_and_the_transfer_completes
)

# may_be_noise LOG: true if all that failed are tests by name, each of them timing-sensitive. A program that died
# left no list of names.
may_be_noise() {
	local name found
	found=$(failures "$1")
	[ "$(grep -cx list <<<"$found")" -eq "$(failed_targets "$1")" ] || return 1
	for name in $(grep -vx list <<<"$found"); do
		[[ " ${TIMING_SENSITIVE[*]} " == *" $name "* ]] || return 1
	done
	[ -n "$found" ]
}

# once_more LOG COMMAND…: tests that others on the machine may have spoilt again, each by itself; true if all pass.
once_more() {
	local log=$1 name
	shift
	may_be_noise "$log" || return 1
	for name in $(failures "$log" | grep -vx list | sort -u); do
		echo "$AGAIN" >>"$log"
		"$@" --exact "$name" >>"$log.again" 2>&1 || { cat "$log.again" >>"$log"; return 1; }
	done
}

# cargo_tests NAME ARGUMENTS…: counts every test; a run that dies counts as one failure.
cargo_tests() {
	local name=$1 log start=$SECONDS verdict=ok bad good
	log=$(log_of "$name")
	shift
	say "$name"
	local tests=(cargo test --release --locked --no-fail-fast "$@")
	rm -f "$log.again"
	"${tests[@]}" >"$log" 2>&1 || verdict=FAILED
	bad=$(sum_of failed "$log") good=$(sum_of passed "$log")
	skipped=$((skipped + $(sum_of ignored "$log")))
	if [ "$verdict" = FAILED ]; then
		[ "$bad" -gt 0 ] || bad=1
		if [[ " $* " == *" --test-threads=1 "* ]] && once_more "$log" "${tests[@]}"; then
			good=$((good + bad)) bad=0 verdict=ok
		fi
	fi
	passed=$((passed + good)) failed=$((failed + bad))
	shown_if_bad "$name" "$verdict"
	row "$name" "$verdict" $((SECONDS - start)) "$(tries "$log")"
}

# scenario FILE DIR: a run on a machine that others share may be spoilt by them, so a
# check that fails (exit code 3) is tried again, and says so: later and later, since others may need the CPUs for a
# while. What fails five times has failed.
scenario() {
	local try status once=(timeout --foreground --kill-after=30 "$SCENARIO_LIMIT_S"
		"$SLUICEGATE" run "$1" --world lab --short --check --out "$2")
	for try in {1..5}; do
		status=0
		"${once[@]}" || status=$?
		[ "$status" -eq 3 ] && [ "$try" -lt 5 ] || return "$status"
		echo "$AGAIN"
		sleep $((try * 10))
	done
}

# Shown on this kernel by another scenario with other numbers or more senders: here they are simulated only; all of them
# meet this kernel in `make experiments`.
SIMULATED_ONLY=(five-stacks incast-1500-n4 incast-1500-n40 incast-9000 incast-9000-n4 incast-9000-n40 priorities-b
	shuffle stride trace-datamining trace-websearch)

scenarios() {
	local file name
	for file in scenarios/*.toml scenarios/lab-only/*.toml; do
		name=$(basename "$file" .toml)
		[[ " ${SIMULATED_ONLY[*]} " != *" $name "* ]] || continue
		stage "scenario $name" scenario "$file" "$LOGS/$name" || true
	done
}

# What the kernel still holds, to compare before and after: namespaces, interfaces, pins, the sysctl that runs
# raise, our congestion controls, BPF programs of the types that ours have with their maps and links, our processes.
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
		for name in gvisor lwip smoltcp quicgo; do pgrep -lx "$name"; done
	} | sort
}

# A test or run that cleans up after itself leaves nothing that was not there before. The kernel frees programs and
# maps a little after their last user has gone.
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

# why LOG: what a failed stage says of itself, in a few lines: names, errors, inputs to repeat, and its end.
why() {
	local found
	failures "$1" | grep -vx list | sort -u | sed 's/^/test /'
	found=$(grep -aE -A2 "panicked at|^error|ERROR|broken:|^✗" "$1" | grep -avx -e -- | head -n "$REPEATED_LINES")
	printf '%s\n' "$found" | cut -c1-200
	grep -a '^base64: ' "$1"
	tail -n "$LAST_LINES" "$1" | cut -c1-200
}

# Whoever sees no more than the end of a long output still sees what failed.
repeat_failures() {
	local name
	for name in ${bad_stages[@]+"${bad_stages[@]}"}; do
		say "$name: FAILED"
		why "$(log_of "$name")" | sed 's/^/  /'
	done
	[ ${#bad_stages[@]} -eq 0 ] || echo
}

finish() {
	say "stages"
	printf '%s\n' "${rows[@]}"
	printf 'total %28s %5s s\n\n' '' "$SECONDS"
	repeat_failures
	if [ "$skipped" -gt 0 ]; then
		echo "$passed passed, $failed failed, $skipped skipped"
	else
		echo "$passed passed, $failed failed"
	fi
	[ "$failed" -eq 0 ]
	exit
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
# setup may have installed the first usable cargo and clang
# shellcheck source=scripts/env.sh
. scripts/env.sh
stage "build" cargo build --release --locked -p sluicegate || finish
# What a run that was killed has left is none of today's doing.
"$SLUICEGATE" lab clean >/dev/null || true
kernel_objects >"$LOGS/objects-before"
# Emulation uses one CPU for minutes, and nothing until "kernel and lab tests" measures.
[ "$(uname -m)" != x86_64 ] || begin "linux 6.12" scripts/kernel-test.sh 6.12 programs
begin "foreign programs" scripts/foreign.sh build
stage "lint" scripts/lint.sh
cargo_tests "tests" "${PARALLEL[@]}"
stage "fuzz smoke" fuzz/run.sh "$FUZZ_SECONDS"
stage "simulated scenarios" "$SLUICEGATE" run scenarios/*.toml scenarios/!(lab-only)/*.toml --world sim --short --check --out "$LOGS/sim"
stage "a sweep" "$SLUICEGATE" sweep scenarios/cee/commercial.toml --short --repeat 1 --only tcp=reno --only background=large \
	--check --out "$LOGS/sweep"
# Of one seed's queries too few meet a loss for PFC to show.
stage "a sweep of datagrams" "$SLUICEGATE" sweep scenarios/cee/commercial-udp.toml --short --repeat 2 --only tcp=reno --only background=large \
	--check --out "$LOGS/sweep-udp"
if [ "$(uname -m)" = x86_64 ]; then
	ended "linux 6.12"
	stage "linux 6.1 is refused" scripts/kernel-test.sh 6.1
fi
ended "foreign programs"
stage "package" scripts/test-deb.sh "$SLUICEGATE" "$LOGS/package"
cargo_tests "kernel and lab tests" "${EXCLUSIVE[@]}" -- --test-threads=1
scenarios
stage "foreign stacks" scripts/foreign.sh "$LOGS" short
stage "nothing left behind" nothing_left
finish
