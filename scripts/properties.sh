#!/usr/bin/env bash
# Tests without a kernel, several times: each time property tests draw other cases. `make test`
# draws the same ones every time.
#
#   properties.sh [TIMES]   TIMES: 5
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/nextest.sh
. "$SG_ROOT/scripts/nextest.sh"
cd "$SG_ROOT"
trap 'exit 130' INT TERM
scripts/tools.sh

failed=0
for seed in $(shuf -i 1-4294967295 -n "${1:-5}"); do
	say "property tests, PROPTEST_RNG_SEED=$seed"
	PROPTEST_RNG_SEED=$seed tests_of parallel || failed=$((failed + 1))
done
[ "$failed" -eq 0 ] || die "tests failed with $failed of these seeds; PROPTEST_RNG_SEED=SEED cargo nextest run repeats them"
