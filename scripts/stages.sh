# shellcheck shell=bash
# Stages of a run of tests: each has a log, a verdict, and the time that it took beside its budget.
# What was tried again is told by name, and is a failure of its own where there is much of it.
# Sourced by test.sh.
#
#   LOGS               where logs go
#   BUDGET_S[NAME]     seconds for a stage; of the first word of NAME where NAME has none
#   TIMING_SENSITIVE   names of tests that may be repeated on a machine that others use
#   PROFILES           of nextest, whose tests may be among the longest

SHOWN_LINES=150
REPEATED_LINES=12
LAST_LINES=3
# One test in a run may meet a moment in which others had the CPUs; several say that something is
# wrong. Those that met the hypervisor, which no program of ours makes busy, are told and not counted.
RETRIED_MAX=2
# Further tries of one run that was disturbed.
TRIES_MAX=4

LONGEST=10

passed=0 failed=0 skipped=0 budgets_s=0 aside=""
rows=() bad_stages=() retried=() stolen=0 PROFILES=()
declare -A BUDGET_S=() beside=()

# Printed into a log before each further try, with the name of what is tried.
AGAIN="==> did not pass, once more: "
# Before that line if the hypervisor was measured to take the CPUs of the try that did not pass.
STOLEN="==> the hypervisor took its CPUs: "

log_of() { echo "$LOGS/${1//[^a-z0-9]/-}.log"; }

# tries LOG: the names of what was tried again, once for each further try.
tries() { sed -n "s/^$AGAIN//p" "$1"; }

# timed FILE COMMAND…: writes seconds of the clock and of CPUs that the command used.
timed() {
	local file=$1 start=$SECONDS status=0
	shift
	(
		trap 'times >"$file.times"' EXIT
		"$@"
	) || status=$?
	awk -v clock="$((SECONDS - start))" -F '[ms ]+' '{ cpu += 60 * ($1 + $3) + $2 + $4 }
		END { printf "%d %.0f\n", clock, cpu }' "$file.times" >"$file"
	rm -f "$file.times"
	return "$status"
}

# all_stolen LOG: the hypervisor took the CPUs of each try that did not pass.
all_stolen() { [ "$(grep -c "^$AGAIN" "$1")" -eq "$(grep -c "^$STOLEN" "$1")" ]; }

# row NAME VERDICT SECONDS CPU_SECONDS: a line of the summary, with what was tried again.
row() {
	local name=$1 verdict=$2 seconds=$3 cpu_s=$4 budget over="" names=() again="" of="-"
	budget=${BUDGET_S[$name]:-${BUDGET_S[${name%% *}]:-}}
	if [ -n "$budget" ]; then
		of=$budget
		[ -n "$aside" ] || budgets_s=$((budgets_s + budget))
		[ "$seconds" -le "$budget" ] || over=" OVER"
	fi
	mapfile -t names < <(tries "$(log_of "$name")" | sort -u)
	if [ ${#names[@]} -gt 0 ]; then
		retried+=("${names[@]}")
		! all_stolen "$(log_of "$name")" || stolen=$((stolen + ${#names[@]}))
		again=" (tried again: $(tries "$(log_of "$name")" | sort | uniq -c | awk '{ n = $1; $1 = ""; sub(/^ /, ""); printf "%s%s ×%d", sep, $0, n; sep = ", " }'))"
	fi
	rows+=("$(printf '%-34s %-6s %5s s of %4s, CPU %5s s%s%s' "$name" "$verdict" "$seconds" "$of" "$cpu_s" "$over" "$again")")
}

# shown_if_bad NAME VERDICT: a stage that passes keeps its output in its log; one that does not
# shows how it ended.
shown_if_bad() {
	[ "$2" = ok ] && return
	bad_stages+=("$1")
	tail -n "$SHOWN_LINES" "$(log_of "$1")"
	say "$1: FAILED; all of it in ${LOGS#"$SG_ROOT"/}/$(basename "$(log_of "$1")")"
}

# counted NAME STATUS SECONDS CPU_SECONDS: a stage that has ended is one check.
counted() {
	local verdict=ok
	if [ "$2" -eq 0 ]; then
		passed=$((passed + 1))
	else
		verdict=FAILED
		failed=$((failed + 1))
	fi
	shown_if_bad "$1" "$verdict"
	row "$1" "$verdict" "$3" "$4"
	[ "$verdict" = ok ]
}

# sum_of WORD LOG: adds up "N WORD" in cargo's result lines.
sum_of() { sed -n "s/^test result:.* \([0-9]*\) $1.*/\1/p" "$2" | awk '{ n += $1 } END { print n + 0 }'; }

# absent NAME WHAT: a stage, or a part of one, for which something is not on this machine.
absent() {
	say "$1: absent: $2"
	skipped=$((skipped + 1))
	rows+=("$(printf '%-34s %-6s %s' "$1" absent "$2")")
}

# summed LOG: "RUN PASSED", of nextest's summary.
summed() {
	sed -nE 's/^ *Summary \[[^]]*\] ([0-9]+)(\/[0-9]+)? tests? run: ([0-9]+) passed.*/\1 \3/p' "$1" |
		awk '{ run += $1; passed += $2 } END { print run + 0, passed + 0 }'
}

# counted_tests NAME STATUS SECONDS CPU_SECONDS: a stage of tests that has ended is as many checks as
# it has tests; one that died is one failure. Tests that passed when they were tried again are in a
# log of their own.
counted_tests() {
	local name=$1 log verdict=ok good bad run ran
	log=$(log_of "$name")
	read -r run ran < <(summed "$log")
	good=$(($(sum_of passed "$log") + ran)) bad=$(($(sum_of failed "$log") + run - ran))
	skipped=$((skipped + $(sum_of ignored "$log")))
	if [ "$2" -eq 0 ]; then
		good=$((good + bad)) bad=0
	else
		verdict=FAILED
		[ "$bad" -gt 0 ] || bad=1
	fi
	passed=$((passed + good)) failed=$((failed + bad))
	shown_if_bad "$name" "$verdict"
	row "$name" "$verdict" "$3" "$4"
	[ "$verdict" = ok ]
}

# stage [-tests] NAME COMMAND…: runs it with its output in a log; -tests: a command that has tests
# to count.
stage() {
	local count=counted name log status=0 seconds cpu_s
	[ "$1" != -tests ] || { count=counted_tests && shift; }
	name=$1
	log=$(log_of "$name")
	shift
	say "$name"
	timed "$log.time" "$@" >"$log" 2>&1 || status=$?
	read -r seconds cpu_s <"$log.time"
	"$count" "$name" "$status" "$seconds" "$cpu_s"
}

# begin NAME COMMAND…: a stage beside those that follow; `ended [-tests] NAME` waits for it. Not for
# what measures.
begin() {
	local name=$1 log
	log=$(log_of "$name")
	shift
	rm -f "$log.status"
	say "$name (beside the next)"
	{
		local status=0
		timed "$log.time" "$@" >"$log" 2>&1 || status=$?
		echo "$status $(<"$log.time")" >"$log.status"
	} &
	beside[$name]=$!
}

ended() {
	local count=counted status=1 seconds=0 cpu_s=0 aside=yes
	[ "$1" != -tests ] || { count=counted_tests && shift; }
	wait "${beside[$1]}"
	unset "beside[$1]"
	# A stage that was killed has left none.
	[ ! -f "$(log_of "$1").status" ] || read -r status seconds cpu_s <"$(log_of "$1").status"
	"$count" "$1" "$status" "$seconds" "$cpu_s"
}

# failures LOG: tests that did not pass, as nextest's summary names them: "HOW PROGRAM TEST". Those
# that also left a process are "FAIL + LEAK" there.
failures() {
	sed -nE '/^ *Summary \[/,$ s/^ +([A-Z-]+)( \+ LEAK)? \[[^]]*\] \([^)]*\) ([^ ]+) (.*)$/\1 \3 \4/p' "$1"
}

# may_be_noise LOG: true if all that did not pass are timing-sensitive tests that failed while others
# were measured to use the CPUs (scripts/others.sh). A test that took too long or died has failed
# for another reason.
may_be_noise() {
	local how program test found run ran
	found=$(failures "$1")
	[ -n "$found" ] || return 1
	# One that is not understood here is no noise.
	read -r run ran < <(summed "$1")
	[ "$(wc -l <<<"$found")" -eq $((run - ran)) ] || return 1
	while read -r how program test; do
		[ "$how" = FAIL ] || return 1
		[[ " ${TIMING_SENSITIVE[*]} " == *" $test "* ]] || return 1
		grep -qE "^ *==> disturbed: $test: " "$1" || return 1
	done <<<"$found"
}

# why LOG: what a failed stage says of itself, in a few lines: names, errors, inputs to repeat, and
# its end.
why() {
	local found
	failures "$1" | sort -u | sed 's/^/test /'
	found=$(grep -aE -A2 "panicked at|^error|ERROR|broken:|^✗" "$1" | grep -avx -e -- | head -n "$REPEATED_LINES")
	printf '%s\n' "$found" | cut -c1-200
	grep -a '^base64: ' "$1"
	tail -n "$LAST_LINES" "$1" | cut -c1-200
}

# Repeats the failures at the end of a long output.
repeat_failures() {
	local name
	for name in ${bad_stages[@]+"${bad_stages[@]}"}; do
		say "$name: FAILED"
		why "$(log_of "$name")" | sed 's/^/  /'
	done
	[ ${#bad_stages[@]} -eq 0 ] || echo
}

# The line of what was tried again; too much of it is a failure.
count_retried() {
	local names count=${#retried[@]} why=""
	[ "$count" -gt 0 ] || { echo "tried again: nothing"; return; }
	printf -v names ', %s' "${retried[@]}"
	[ "$stolen" -eq 0 ] || why="; of $stolen the hypervisor had taken the CPUs"
	echo "tried again: $count (${names#, })$why"
	[ "$((count - stolen))" -gt "$RETRIED_MAX" ] || return
	failed=$((failed + 1))
	echo "tried again: FAILED, more than $RETRIED_MAX in one run"
}

# longest: the ten longest of stages and of tests.
longest() {
	printf '\nthe %d longest stages and tests\n' "$LONGEST"
	{
		printf '%s\n' "${rows[@]}" | sed -nE 's/^(.{33}[^ ]*) +[A-Za-z]+ +([0-9]+) s of.*/\2 \1/; T; s/ +$//; p'
		slowest ${PROFILES[@]+"${PROFILES[@]}"}
	} | sort -rn | head -n "$LONGEST" | awk '{ seconds = $1; $1 = ""; printf "%6.0f s %s\n", seconds, $0 }'
}

# finish: the summary, and the verdict as exit code.
finish() {
	say "stages"
	printf '%s\n' "${rows[@]}"
	printf 'total %35s s of %4s\n' "$SECONDS" "${BUDGET_S[total]:--}"
	# Without those that run beside others.
	printf 'budgets of these stages, summed %9s s of %4s\n' "$budgets_s" "${BUDGET_S[total]:--}"
	longest
	count_retried
	echo
	repeat_failures
	if [ "$skipped" -gt 0 ]; then
		echo "$passed passed, $failed failed, $skipped skipped"
	else
		echo "$passed passed, $failed failed"
	fi
	[ "$failed" -eq 0 ]
	exit
}

# invariant_broken OUTPUT: whether something has happened that no lack of CPU time explains:
#
#   - TCP has repeated or reordered what nothing explains;
#   - a figure is not exactly what it must be (`==`), as with a compliant sender that is policed;
#   - a counter of enforcement or of drops has counted what must not happen (`<= 0`, `< 1`), or has
#     not counted once what must (`>= 1`, `> 0`);
#   - a host has not noticed that its feedback is lost or bleached, whatever the bound.
#
# Any other bound of a counter depends on how much a run got done: fewer packets are policed in one
# that waited for the CPU.
invariant_broken() {
	local claim='[^ ]+: .* \(.* against .*\)$'
	grep -qE ": tcp_[a-z_]+ = .* where the experiment is not about it$" "$1" ||
		grep -E "$claim" "$1" |
		grep -qE ' == |(\.enforcement\.|\.drops).* (<= 0|< 1|>= 1|> 0) \(|\.feedback_(mismatch|stopped)'
}

# once_more NAME TRY COMMAND…: says that NAME is tried again, and whether the hypervisor had taken the
# CPUs (COMMAND succeeds), and waits, longer before each further try.
once_more() {
	! "${@:3}" || echo "$STOLEN$1"
	echo "$AGAIN$1"
	sleep "$(($2 * ${PAUSE_S:-20}))"
}

# measured NAME COMMAND…: a run with --check in the lab. A check that fails (exit code 3) has
# failed; only a run that says that it was disturbed is tried again, up to four times, later and
# later, and never where an invariant is broken.
measured() {
	local name=$1 try=1 status said
	said=$(log_of "$name").said
	shift
	while :; do
		status=0
		"$@" >"$said" 2>&1 || status=$?
		cat "$said"
		[ "$status" -eq 3 ] && disturbed "$said" && ! invariant_broken "$said" || break
		[ "$try" -le "$TRIES_MAX" ] || break
		once_more "$name" "$try" grep -q '^note: the hypervisor took ' "$said"
		try=$((try + 1))
	done
	rm -f "$said"
	return "$status"
}
