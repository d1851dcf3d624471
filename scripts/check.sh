#!/usr/bin/env bash
# The loop of editing: builds, runs tests of units, and lints what has changed since a commit. Needs
# no root. `make test` is what decides.
#
#   check.sh   BASE: the commit, else HEAD, or the one before it where nothing has changed since
#
# All of the workspace is one build, that of `make test`, so that nothing is built twice; cargo
# builds what has changed and what uses it.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"
# shellcheck source=scripts/nextest.sh
. scripts/nextest.sh

LIMIT_S=180
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}

command -v cargo >/dev/null || die "cargo ≥ 1.$SG_RUST_MINOR is missing; sudo make setup installs it"
base=${BASE:-HEAD}
[ -n "${BASE:-}" ] || [ -n "$(git status --porcelain)" ] || base=HEAD~1

failed=0
step() {
	local name=$1 start=$SECONDS
	shift
	say "$name"
	"$@" || { echo "$name: FAILED"; failed=$((failed + 1)); }
	echo "$name: $((SECONDS - start)) s"
}

BUILT=(--release --locked --workspace --lib --bins)
scripts/crates-cache.sh restore
step "lint of what has changed since $base" scripts/lint.sh "$base"
scripts/tools.sh
step "build" cargo test "${BUILT[@]}" --no-run
step "unit tests" tests_of parallel
say "$SECONDS s of $LIMIT_S, $failed steps failed"
[ "$failed" -eq 0 ]
