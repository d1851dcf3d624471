#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a bounded time.
#
#   run.sh SECONDS [TARGET…]   targets: every fuzz_*.c here and goal, by default
#
# The corpus of each target stays in fuzz/corpus/TARGET; an input that breaks an invariant is
# left in fuzz/artifacts/ and printed (in base64, so that it can be taken from another machine's output). Repeat one
# with: TRACE=1 target/fuzz/TARGET FILE
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/env.sh"
cd "$SG_ROOT"

# Where the headers under test are; a mutated copy may take their place.
CORE_INCLUDE=${CORE_INCLUDE:-crates/core/c}
BIN=target/fuzz
SANITIZERS=-fsanitize=fuzzer,address,undefined
FLAGS=(-std=c11 -O2 -g -Wall -Wextra -Werror -fno-sanitize-recover=all -fno-omit-frame-pointer
	-I"$CORE_INCLUDE" -Ifuzz)

build() { # build SOURCE OUTPUT FLAGS…
	local source=$1 output=$2
	shift 2
	"$SG_CLANG" "${FLAGS[@]}" "$@" -o "$output" "$source"
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

fuzz() { # fuzz TARGET SECONDS
	local target=$1 seconds=$2 log
	log=$BIN/$target.log
	if "$BIN/$target" -max_total_time="$seconds" -max_len=1024 -timeout=10 -rss_limit_mb=2048 \
		-artifact_prefix="fuzz/artifacts/$target-" -print_final_stats=1 \
		"fuzz/corpus/$target" >"$log" 2>&1; then
		printf '%-14s ok      %s\n' "$target" "$(summary "$log")"
	else
		grep -E 'broken:|ERROR|runtime error|Test unit written' "$log" >&2 || tail -20 "$log" >&2
		unit "$log"
		printf '%-14s FAILED  see %s\n' "$target" "$log"
		return 1
	fi
}

unit() { # unit LOG: the input that broke something
	local file
	file=$(sed -n 's/.*Test unit written to //p' "$1" | tail -1)
	[ ! -f "$file" ] || echo "base64: $(base64 -w0 "$file")"
}

summary() {
	local runs frames coverage
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$1")
	frames=$(sed -n 's/^stat::frames: *//p' "$1")
	coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$1" | tail -1)
	echo "${runs:-0} inputs, ${frames:+$frames frames, }${coverage:-0} edges"
}

main() {
	local seconds=${1:?usage: run.sh SECONDS [TARGET…]} target failed=0 targets
	shift
	[ -n "$SG_CLANG" ] || die "no clang >= $SG_CLANG_MAJOR; run scripts/setup.sh test"
	if [ $# -eq 0 ]; then
		mapfile -t targets < <(cd fuzz && printf "%s\n" fuzz_*.c | sed "s/^fuzz_//; s/\.c$//")
		set -- "${targets[@]}" goal
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
		build "fuzz/fuzz_$target.c" "$BIN/$target" "$SANITIZERS"
		seeds "$target"
		fuzz "$target" "$seconds" || failed=1
	done
	return "$failed"
}

main "$@"
