# shellcheck shell=bash
# Tests by room (scripts/test-room.sh). Sourced by test.sh and properties.sh.

# All test programs are one build: another choice of packages would have other features, and be
# built again.
TESTS=(cargo test --release --locked --no-fail-fast --workspace)
PROGRAMS=(--lib --bins --tests --examples)

# tests_of ROOM [ARGUMENT…]: the tests of a room; arguments are those of test programs.
tests_of() {
	local room=$1 host
	shift
	host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
	env "CARGO_TARGET_${host}_RUNNER=$SG_ROOT/scripts/test-room.sh" "SG_TEST_ROOM=$room" \
		"${TESTS[@]}" "${PROGRAMS[@]}" -- "$@"
}
