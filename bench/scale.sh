#!/usr/bin/env bash
# Enforcement with many flows: bench/scale/.
#
#   scale.sh DIR [ARGUMENTS…]   results.json goes to DIR; --flows N, --rate PACKETS, --turnover N, --syns N
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/env.sh"
cd "$SG_ROOT"

out=${1:?usage: scale.sh DIR [ARGUMENTS…]}
shift
[ "$(id -u)" -eq 0 ] || die "this benchmark needs root: it loads kernel programs and builds network namespaces"
scripts/setup.sh demo
# setup may have installed the first usable cargo and clang
# shellcheck source=scripts/env.sh
. scripts/env.sh
mkdir -p "$out"
cargo bench --locked -p sluicegate-agent --bench scale -- --out "$(readlink -f "$out")" "$@"
