#!/usr/bin/env bash
# The effects of halving and doubling each parameter, for every scenario in short form with three
# seeds; of the sweeps of queries one TCP and one background, as `make test` runs them.
#
#   parameters.sh DIR   writes sensitivity.md and sensitivity.json into DIR, and copies the former
#                       to docs/parameters.md
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

out=${1:?usage: parameters.sh DIR}
cargo build --release --locked -p sluicegate
shopt -s extglob
"$SG_TARGET/release/sluicegate" sensitivity scenarios/*.toml scenarios/!(lab-only)/*.toml --short --repeat 3 \
	--only tcp=reno --only background=large --out "$out"
cp "$out/sensitivity.md" docs/parameters.md
