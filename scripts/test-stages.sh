#!/usr/bin/env bash
# The stages of make test, with commands that only pretend: verdicts, budgets, tries and the exit
# code.
set -uo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

# pretend TEXT: what a run of stages prints, and "exit N"; TEXT is its script.
pretend() {
	mkdir -p "$work/logs"
	(
		LOGS=$work/logs PAUSE_S=0
		. "$SG_ROOT/scripts/stages.sh"
		BUDGET_S=([quick]=5 [lab]=60 ["lab slow"]=0 [total]=100)
		# The exit code of each further call, from a file with one in each line; the last one stays.
		next() {
			local codes=$work/$1 code
			code=$(head -n 1 "$codes")
			[ "$(wc -l <"$codes")" -eq 1 ] || sed -i 1d "$codes"
			[ "$code" -eq 0 ] || printf '%b\n' "${2:-}"
			return "$code"
		}
		# codes FILE CODE…
		codes() { local file=$work/$1 && shift && printf '%s\n' "$@" >"$file"; }
		eval "$1"
		finish
	) 2>&1
	echo "exit $?"
}

# expect NAME SCRIPT [PATTERN…]: each pattern must match a line of what the script prints.
expect() {
	local name=$1 said pattern
	said=$(pretend "$2")
	shift 2
	for pattern in "$@"; do
		grep -qE -e "$pattern" <<<"$said" && continue
		bad=$((bad + 1))
		printf '%s: "%s" in\n%s\n' "$name" "$pattern" "$said"
	done
}

FAILED_ONCE="check failed: t: rtt: a.rtt_us.p99 <= 2 (3 against 2)"
DISTURBED="check failed: t: softnet_dropped = 3 where the experiment is not about it"
UNEXPLAINED="check failed: t: tcp_retransmits = 3 where the experiment is not about it"

expect "a stage that passes" 'stage quick true' '^quick +ok +0 s of +5, CPU +0 s$' '^total +[0-9]+ s of +100$' \
	'^tried again: nothing$' '^1 passed, 0 failed$' '^exit 0$'
expect "a stage that fails" 'stage quick false; stage "lab a" true' '^quick +FAILED' '^lab a +ok' '^quick: FAILED|^==> quick: FAILED' \
	'^1 passed, 1 failed$' '^exit 1$'
expect "over its budget" 'stage "lab slow" sleep 1' '^lab slow +ok +[12] s of +0, CPU +0 s OVER$' '^exit 0$'
expect "without a budget" 'stage other true' '^other +ok +0 s of +-, CPU +0 s$'
expect "budgets are summed" 'stage quick true; stage "lab a" true; stage "lab slow" true; stage other true' \
	'^budgets of these stages, summed +65 s of +100$'
expect "beside others" 'begin "lab a" sh -c "sleep 1; exit 1"; stage quick true; ended "lab a"; stage "lab b" true' \
	'^lab a +FAILED +[12] s' '^2 passed, 1 failed$' '^exit 1$'
expect "tests are counted" 'stage -tests quick echo "test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured"' \
	'^5 passed, 0 failed, 2 skipped$'
expect "tests fail" 'stage -tests quick sh -c "echo \"test result: FAILED. 5 passed; 2 failed; 0 ignored\"; exit 101"' \
	'^5 passed, 2 failed$' '^exit 1$'
expect "what is not on this machine" 'stage quick true; absent "suite a" "no folder a"' \
	'^suite a +absent no folder a$' '^==> suite a: absent: no folder a$' '^1 passed, 0 failed, 1 skipped$' '^exit 0$'
expect "a build of tests fails" 'stage -tests quick false' '^0 passed, 1 failed$'
expect "a check that fails in a quiet run" "codes c 3 0; stage 'lab a' measured 'lab a' next c '$FAILED_ONCE'" \
	'^lab a +FAILED' '^tried again: nothing$' '^0 passed, 1 failed$' '^exit 1$'
expect "a check that fails in a disturbed run" "codes c 3 0; stage 'lab a' measured 'lab a' next c '$FAILED_ONCE\n$DISTURBED'" \
	'^lab a +ok .*\(tried again: lab a ×1\)$' '^tried again: 1 \(lab a\)$' '^1 passed, 0 failed$' '^exit 0$'
expect "a check that fails where the hypervisor took a CPU" \
	"codes c 3 0; stage 'lab a' measured 'lab a' next c '$FAILED_ONCE\nnote: the hypervisor took 12 % of one CPU in one second'" \
	'^lab a +ok .*\(tried again: lab a ×1\)$' '^exit 0$'
expect "what nothing explains" "codes c 3 0; stage 'lab a' measured 'lab a' next c '$DISTURBED\n$UNEXPLAINED'" \
	'^lab a +FAILED' '^tried again: nothing$' '^exit 1$'
expect "a disturbed run" "codes c 3 3 3 3 0; stage 'lab a' measured 'lab a' next c '$DISTURBED'" \
	'^lab a +ok .*\(tried again: lab a ×4\)$' '^tried again: 1 \(lab a\)$' '^exit 0$'
expect "five disturbed runs" "codes c 3 3 3 3 3 0; stage 'lab a' measured 'lab a' next c '$DISTURBED'" '^lab a +FAILED' '^exit 1$'
expect "a broken invariant" "codes c 3 0; stage 'lab a' measured 'lab a' next c '$DISTURBED\n  t: not-policed: a.enforcement.policed == 0 (4 against 0)'" \
	'^lab a +FAILED' '^tried again: nothing$' '^exit 1$'
expect "no drop" "codes c 3 0; stage 'lab a' measured 'lab a' next c '$DISTURBED\n  t: x: a.links.all.drops <= 0 (1 against 0)'" \
	'^lab a +FAILED' '^tried again: nothing$' '^exit 1$'
expect "not even once" "codes c 3 0; stage 'lab a' measured 'lab a' next c '$DISTURBED\n  t: x: a.enforcement.policed >= 1 (0 against 1)'" \
	'^lab a +FAILED' '^tried again: nothing$' '^exit 1$'
expect "a count that depends on speed" "codes c 3 0; stage 'lab a' measured 'lab a' next c '$DISTURBED\n  t: x: a.enforcement.policed >= 10 (7 against 10)'" \
	'^lab a +ok .*\(tried again: lab a ×1\)$' '^exit 0$'
expect "bleaching that was not noticed" "codes c 3 0; stage 'lab a' measured 'lab a' next c '$DISTURBED\n  t: x: a.enforcement.feedback_stopped + a.enforcement.feedback_mismatch >= 4 (2 against 4)'" \
	'^lab a +FAILED' '^tried again: nothing$' '^exit 1$'
expect "a run that cannot begin" "codes c 2 0; stage 'lab a' measured 'lab a' next c x" '^lab a +FAILED' '^tried again: nothing$'
expect "three are too many" "for name in a b c; do codes c 3 0; stage \"lab \$name\" measured \"lab \$name\" next c '$DISTURBED'; done" \
	'^tried again: 3 \(lab a, lab b, lab c\)$' '^tried again: FAILED, more than 2' '^3 passed, 1 failed$' '^exit 1$'
STOLEN_CPU="$FAILED_ONCE\nnote: the hypervisor took 12 % of one CPU in one second"
expect "three whose CPUs the hypervisor took" \
	"for name in a b c; do codes c 3 3 0; stage \"lab \$name\" measured \"lab \$name\" next c '$STOLEN_CPU'; done" \
	'^tried again: 3 \(lab a, lab b, lab c\); of 3 the hypervisor had taken the CPUs$' '^3 passed, 0 failed$' '^exit 0$'
expect "three beside one whose CPUs the hypervisor took" \
	"codes c 3 0; stage 'lab x' measured 'lab x' next c '$STOLEN_CPU'
	for name in a b c; do codes c 3 0; stage \"lab \$name\" measured \"lab \$name\" next c '$DISTURBED'; done" \
	'^tried again: 4 .*; of 1 the' '^tried again: FAILED, more than 2' '^exit 1$'
# shellcheck disable=SC2016 # expands where the script runs
expect "cases of one stage count each" 'stage quick printf "$AGAIN%s\n" one one two' \
	'\(tried again: one ×2, two ×1\)$' '^tried again: 2 \(one, two\)$' '^exit 0$'

# noise yes|no NAME: whether the failures in the log on standard input may be noise.
log=$work/noise.log
noise() {
	local wanted=$1 name=$2 said=no
	cat >"$log"
	[[ $(pretend "TIMING_SENSITIVE=(fills keeps); may_be_noise '$log' && echo it may") != *"it may"* ]] ||
		said=yes
	[ "$said" = "$wanted" ] && return
	bad=$((bad + 1))
	printf '%s: %s, not %s\n' "$name" "$said" "$wanted"
}
# told HOW TEST [disturbed]: what nextest prints of a test that does not pass, while it runs.
told() {
	printf '        %s [   1.234s] (1/2) sluicegate-lab::world %s\n    test result: FAILED. 0 passed\n' "$1" "$2"
	[ "${3:-}" != disturbed ] || echo "    ==> disturbed: $2: others used 90 % of a CPU in one second, most of it x"
}
# summary [HOW TEST]…: its end.
summary() {
	printf '     Summary [   2.345s] 2 tests run: %d passed, %d failed, 3 skipped\n' $((2 - $# / 2)) $(($# / 2))
	[ $# -eq 0 ] || printf '        %s [   1.234s] (1/2) sluicegate-lab::world %s\n' "$@"
}
noise yes "a disturbed test" < <(told FAIL fills disturbed; summary FAIL fills)
noise no "a quiet test" < <(told FAIL fills; summary FAIL fills)
noise no "another test was disturbed" < <(
	echo "    ==> disturbed: keeps: others used 90 % of a CPU"
	told FAIL fills
	summary FAIL fills
)
noise yes "two disturbed tests" < <(
	told FAIL fills disturbed
	told FAIL keeps disturbed
	summary FAIL fills FAIL keeps
)
noise yes "one that also left a process" < <(
	told FAIL fills disturbed
	told "FAIL + LEAK" keeps disturbed
	summary FAIL fills "FAIL + LEAK" keeps
)
noise no "one that also left a process in a quiet run" < <(
	told FAIL fills disturbed
	told "FAIL + LEAK" keeps
	summary FAIL fills "FAIL + LEAK" keeps
)
noise no "one that nextest calls otherwise" < <(
	told FAIL fills disturbed
	told "FAIL of another kind" keeps disturbed
	summary FAIL fills "FAIL of another kind" keeps
)
noise no "one of two was disturbed" < <(
	told FAIL fills
	told FAIL keeps disturbed
	summary FAIL fills FAIL keeps
)
noise no "a test of counters" < <(told FAIL counts disturbed; summary FAIL counts)
noise no "a test that died" < <(told SIGABRT fills disturbed; summary SIGABRT fills)
noise no "a test that took too long" < <(told TIMEOUT fills disturbed; summary TIMEOUT fills)
noise no "no test at all" < <(echo "error: could not compile")
expect "tests of nextest are counted" "stage -tests quick echo '     Summary [   0.123s] 7 tests run: 7 passed (1 slow), 3 skipped'" \
	'^7 passed, 0 failed$' '^exit 0$'
expect "tests of nextest fail" "stage -tests quick sh -c 'echo \"     Summary [   0.123s] 7 tests run: 4 passed, 2 failed, 1 timed out, 0 skipped\"; exit 100'" \
	'^4 passed, 3 failed$' '^exit 1$'
expect "a run that was ended" "stage -tests quick sh -c 'echo \"     Summary [   0.123s] 3/7 tests run: 3 passed, 0 skipped\"; exit 100'" \
	'^3 passed, 1 failed$' '^exit 1$'

# Who interrupts others.sh ends the program and its children, which may be interrupted themselves.
interrupted() {
	local script
	# shellcheck disable=SC2016 # expands in the program
	"$SG_ROOT/scripts/others.sh" bash -c 'trap "echo told >\"$0\"; exit" INT; sleep 60 & echo $! >"$0.child"
		kill -INT $$; wait' "$work/said" >/dev/null 2>&1
	[ "$(cat "$work/said")" = told ] || return 1
	# shellcheck disable=SC2016
	"$SG_ROOT/scripts/others.sh" bash -c 'sleep 60 & echo $! >"$0"; wait' "$work/child" &
	script=$!
	until [ -s "$work/child" ]; do sleep 0.1; done
	kill -TERM "$script"
	wait "$script"
	kill "$(cat "$work/said.child")" 2>/dev/null
	for _ in {1..20}; do
		# What has ended may wait for its parent.
		grep -qs "^State:[[:space:]]*[^ZX]" "/proc/$(cat "$work/child")/status" || return 0
		sleep 0.1
	done
	return 1
}
# A run is tried again for the words in which the program says that it was disturbed.
said_by_the_program() {
	local words
	for words in 'the CPU was the bottleneck even at' 'the hypervisor took' '_dropped"'; do
		grep -rqF "$words" "$SG_ROOT"/crates/{cli,lab}/src || { echo "no code says '$words'"; return 1; }
		disturbed <(printf 'note: a: %s 5 %%\nnote: %s 7 %%\ncheck: %s = 3\n' "$words" "$words" "x${words%\"}") ||
			{ echo "no run that says '$words' is taken for disturbed"; return 1; }
	done
}
said_by_the_program || { bad=$((bad + 1)); echo "disturbed of env.sh looks for other words than runs say"; }

# has_test PATTERN: of a function's whole name, after its modules if it names some; or MODULE:: for a
# file of tests.
has_test() {
	local module=${1%%::*} function=${1##*::} crates=$SG_ROOT/crates
	case $1 in
	*::) compgen -G "$crates/*/tests/$module.rs" >/dev/null || compgen -G "$crates/*/tests/$module/mod.rs" >/dev/null ;;
	*::*) grep -rlE "fn $function\b" "$crates"/*/{src,tests} | grep -qE "/$module(/|\.rs$)" ;;
	*) grep -rqE "fn $function\b" "$crates"/*/{src,tests} ;;
	esac
}

# A name that nothing has any more would leave out nothing, or run nothing, in silence.
names_exist() {
	local name
	for name in $(sed -n '/^TIMING_SENSITIVE=(/,/^)/ { s/^[A-Z_]*=(\|^)//; p }' "$SG_ROOT/scripts/test.sh") \
		$(grep -ohE 'test\((=|/\^)[a-z_:]+' "$SG_ROOT"/{.config/nextest.toml,scripts/experiments.sh} | sed 's/.*[=^]//') \
		$(grep -ohE -- '--test all -- [a-z_:]+' "$SG_ROOT"/scripts/*.sh "$SG_ROOT"/docs/*.md | sed 's/.* //; /::$/!s/$/[a-z_]*/') \
		$(grep -oE 'agent:[a-z_:]+' "$SG_ROOT/scripts/kernel-test.sh" | sed 's/agent://'); do
		has_test "$name" || { echo "no test is called $name"; return 1; }
	done
	eval "$(sed -n '/^LAB=(/,/)$/p; /^LARGE=(/,/)$/p' "$SG_ROOT/scripts/test.sh")" &&
		[ ${#LAB[@]} -gt 0 ] && [ ${#LARGE[@]} -gt 0 ] || { echo "the lists of scenarios cannot be read"; return 1; }
	for name in "${LAB[@]%% *}" "${LARGE[@]}"; do
		[ -f "$SG_ROOT/scenarios/$name.toml" ] || { echo "no scenario is called $name"; return 1; }
	done
}
names_exist || { bad=$((bad + 1)); echo "test.sh or nextest.toml name what there is not"; }

interrupted || { bad=$((bad + 1)); echo "others.sh does not end what it started, or not by an interrupt"; }

[ "$bad" -eq 0 ] && echo "stages are told as they are"
