#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a bounded time.
#
#   run.sh SECONDS [TARGET…]   targets: every fuzz_*.c here, goal, rings, messages and cables, by default
#   INPUTS=N run.sh 0 TARGET…  so many inputs each instead, by all CPUs, however long they take
#
# The corpus of each target stays in fuzz/corpus/TARGET; an input that breaks an invariant is
# left in fuzz/artifacts/ and printed (in base64, so that it can be taken from another machine's output). Repeat one
# with: TRACE=1 target/fuzz/TARGET FILE
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/env.sh"
cd "$SG_ROOT"
shopt -s extglob

HEADERS=crates/core/c
BIN=$SG_TARGET/fuzz
SANITIZERS=-fsanitize=fuzzer,address,undefined
FLAGS=(-std=c11 -O2 -g -Wall -Wextra -Werror -fno-sanitize-recover=all -fno-omit-frame-pointer
	-I"$HEADERS" -Ifuzz)

# Of the switch's targets: what is freed stays for a megabyte, and where it was is told by few calls.
SWITCH_ASAN=quarantine_size_mb=1:thread_local_quarantine_size_kb=64:malloc_context_size=4
SWITCH_ASAN+=:detect_stack_use_after_return=0:detect_leaks=0

# build SOURCE OUTPUT FLAGS…: unless it was built so, of files that have not changed since.
build() {
	local source=$1 output=$2 by
	shift 2
	by=$("$SG_CLANG" --version && echo "${FLAGS[@]}" "$@")
	if [ -f "$output" ] && [ "$by" = "$(cat "$output.by" 2>/dev/null)" ] &&
		[ -z "$(find "$source" fuzz/*.h "$HEADERS" -newer "$output" -print -quit)" ]; then
		return
	fi
	rm -f "$output.by"
	"$SG_CLANG" "${FLAGS[@]}" "$@" -o "$output" "$source"
	echo "$by" >"$output.by"
}

# The readers of GOAL files are Rust: instrumented as clang does it, and linked to libFuzzer.
build_goal() {
	local flags="-Cpasses=sancov-module -Ccodegen-units=1 -Cllvm-args=-sanitizer-coverage-level=4"
	flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
	flags+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cpanic=abort"
	RUSTFLAGS=$flags cargo build --quiet --release --manifest-path fuzz/goal/Cargo.toml \
		--target "$(rustc -vV | sed -n 's/^host: //p')" --target-dir "$BIN/goal-target"
	"$SG_CLANG" -fsanitize=fuzzer -o "$BIN/goal" -Wl,--whole-archive \
		"$BIN"/goal-target/*/release/libfuzz_goal.a -Wl,--no-whole-archive -lpthread -ldl -lm
}

# The switch is Rust, too, and runs under ASan, which the compiler still calls unstable. Memory of
# guests is no memory of the allocator: its accesses are checked by the switch itself, and what ASan
# sees are the frames, tables and messages that it makes of them. One program is all three targets.
build_switch() {
	local flags="-Cpasses=sancov-module -Ccodegen-units=1 -Cllvm-args=-sanitizer-coverage-level=4"
	flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
	flags+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cpanic=abort -Zsanitizer=address"
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=$flags cargo build --quiet --release --locked \
		--manifest-path fuzz/switch/Cargo.toml --target "$(rustc -vV | sed -n 's/^host: //p')" \
		--target-dir "$BIN/switch-target"
	"$SG_CLANG" -fsanitize=fuzzer,address -o "$BIN/switch" -Wl,--whole-archive \
		"$BIN"/switch-target/*/release/libfuzz_switch.a -Wl,--no-whole-archive \
		-lelf -lz -lpthread -ldl -lm
	local target
	for target in rings messages cables; do ln -f "$BIN/switch" "$BIN/$target"; done
}

# Two guests with rings, buffers and segments; frontends and a peer that keep the rules, up to a point.
switch_seeds() { # switch_seeds TARGET
	mkdir -p "fuzz/corpus/$1" fuzz/artifacts
	case $1 in
	rings)
		printf '\0\x19\x19\x09\0\x20\x02\0\x08\x89\0\x20\x02\0\x08\x05\x02\x40\xc4\0\0\0\0\0\0\0\0' \
			>fuzz/corpus/rings/segment
		printf '\x01\x18\x1a\x05\x01\0\x01\x01\0\0\0\0\x33\x1e\x02\x04\x10\0\x16\x18\x02' >fuzz/corpus/rings/short
		;;
	messages)
		printf '\0\0\xf6\0\x1d\x0d\x1a\x0b\x0f' >fuzz/corpus/messages/proper
		printf '\0\x34\xf6\0\x01\x04\x01\x40\0\x02' >fuzz/corpus/messages/again
		;;
	cables)
		printf '\0\x8f\x05\x06\0\x1b\0\x0a\x0d\0\0\x05\x08\x02\0\x02\x01\x19\0' \
			>fuzz/corpus/cables/both-ways
		printf '\0\0\x05\x28\0\x20\x07\0\x5b\0\x0a\x0d\0\x1e\0\x1f\x0f\x05\0\x40\0\x07\0' \
			>fuzz/corpus/cables/again
		;;
	esac
}

goal_seeds() {
	mkdir -p fuzz/corpus/goal fuzz/artifacts
	head -c 900 scenarios/programs/sweep.goal >fuzz/corpus/goal/cut
	printf 'num_ranks 2\nrank 0 {\na: calc 5 cpu 1\nb: send 8b to 1 tag 3\nb requires a\n}\n%s' \
		$'rank 1 {\nb: recv 8b from -1 tag -1\na: calc 1\na irequires b\n}\n' >fuzz/corpus/goal/two
	printf '\x7f\x10\0\0\0\0\0\0\1\0\0\0\0\0\x16\0\0\0\0\0\0\0\x49\0\0\0\0\0\0\0%s' \
		"" >fuzz/corpus/goal/binary
	printf '\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\3\0\0\0\0\5\0\0\0\0\0\0\0%s' \
		"" >>fuzz/corpus/goal/binary
	head -c 22 /dev/zero >>fuzz/corpus/goal/binary
}

seeds() { # seeds TARGET: the starting corpus, made afresh by a program
	local target=$1
	mkdir -p "fuzz/corpus/$target" fuzz/artifacts
	"$BIN/seeds" "$target" "fuzz/corpus/$target"
}

# By process, its log.
declare -A running=()

# Ends all processes: one has found something, or the run is interrupted.
stop() {
	[ ${#running[@]} -eq 0 ] || kill "${!running[@]}" 2>/dev/null || true
	wait
	running=()
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fuzz() { # fuzz TARGET SECONDS
	local target=$1 options=(-max_total_time="$2") processes=1 number pid failed=0
	if [ -n "${INPUTS:-}" ]; then
		processes=$(nproc)
		# Of so many, most are short: their length grows slowly, and the longest take a hundred times as long.
		options=(-runs=$(((INPUTS + processes - 1) / processes)) -len_control=300)
	fi
	case $target in
	# All inputs have the same chance, which takes less time than to weigh them.
	rings | messages | cables) options+=(-entropic=0) ;;
	esac
	rm -f "$BIN/$target".+([0-9]).log
	for ((number = 0; number < processes; number++)); do
		"$BIN/$target" "${options[@]}" -max_len=1024 -timeout=10 -rss_limit_mb=2048 \
			-artifact_prefix="fuzz/artifacts/$target-" -print_final_stats=1 \
			"fuzz/corpus/$target" >"$BIN/$target.$number.log" 2>&1 &
		running[$!]=$BIN/$target.$number.log
	done
	while [ ${#running[@]} -gt 0 ]; do
		if ! wait -n -p pid "${!running[@]}"; then
			failed=1
			explain "${running[$pid]}"
			stop
		fi
		unset "running[$pid]"
	done
	printf '%-14s %-7s %s\n' "$target" "$([ $failed -eq 0 ] && echo ok || echo FAILED)" "$(summary "$target")"
	return $failed
}

# explain LOG: why a process ended, and the input that broke something.
explain() {
	local file
	grep -E 'broken:|ERROR|runtime error|Test unit written' "$1" >&2 || tail -20 "$1" >&2
	file=$(sed -n 's/.*Test unit written to //p' "$1" | tail -1)
	[ ! -f "$file" ] || echo "base64: $(base64 -w0 "$file")"
	echo "see $1"
}

summary() { # summary TARGET: inputs and frames of its processes, and the most edges of one
	awk '
		/^stat::number_of_executed_units:/ { inputs += $2 }
		/^stat::frames:/ { frames += $2 }
		match($0, / cov: [0-9]+ /) { cov = substr($0, RSTART + 6, RLENGTH - 7) + 0; if (cov > edges) edges = cov }
		END { printf "%.0f inputs, %s%d edges\n", inputs, frames ? sprintf("%.0f frames, ", frames) : "", edges }
	' "$BIN/$1".+([0-9]).log
}

main() {
	local seconds=${1:?usage: run.sh SECONDS [TARGET…]} target failed=0 targets
	shift
	[ -n "$SG_CLANG" ] || die "no clang >= $SG_CLANG_MAJOR; run scripts/setup.sh test"
	if [ $# -eq 0 ]; then
		mapfile -t targets < <(cd fuzz && printf "%s\n" fuzz_*.c | sed "s/^fuzz_//; s/\.c$//")
		set -- "${targets[@]}" goal rings messages cables
	fi
	mkdir -p "$BIN"
	build fuzz/seeds.c "$BIN/seeds" -fsanitize=address,undefined
	for target in "$@"; do
		if [ "$target" = goal ]; then
			build_goal
			goal_seeds
			fuzz goal "$seconds" || failed=1
			continue
		fi
		case $target in
		rings | messages | cables)
			build_switch
			switch_seeds "$target"
			ASAN_OPTIONS=$SWITCH_ASAN fuzz "$target" "$seconds" || failed=1
			continue
			;;
		esac
		build "fuzz/fuzz_$target.c" "$BIN/$target" "$SANITIZERS"
		seeds "$target"
		fuzz "$target" "$seconds" || failed=1
	done
	return "$failed"
}

main "$@"
