# shellcheck shell=bash
# How tests run: with cargo-nextest, by the profiles of .config/nextest.toml. Sourced.

# What is built: all of the workspace. Another choice of packages would have other features, and be
# built again.
BUILT=(--release --locked --workspace --lib --bins --tests --examples)

# tests_of PROFILE [ARGUMENT…]
tests_of() {
	local profile=$1
	shift
	cargo nextest run --color never --profile "$profile" "${BUILT[@]}" "$@"
}

# with_others COMMAND…: each of its tests runs below scripts/others.sh, which measures what others
# take of the CPUs meanwhile.
with_others() {
	local host
	host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
	export "CARGO_TARGET_${host}_RUNNER=$SG_ROOT/scripts/others.sh"
	"$@"
	set -- "$?"
	unset "CARGO_TARGET_${host}_RUNNER"
	return "$1"
}

# junit PROFILE: where its results are.
junit() { echo "$SG_TARGET/nextest/$1/junit.xml"; }

# slowest PROFILE…: lines "SECONDS PROGRAM TEST".
slowest() {
	local profile
	for profile in "$@"; do
		[ ! -f "$(junit "$profile")" ] || sed -n 's/.*<testcase name="\([^"]*\)" classname="\([^"]*\)".* time="\([0-9.]*\)".*/\3 \2 \1/p' "$(junit "$profile")"
	done
}
