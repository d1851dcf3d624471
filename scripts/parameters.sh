#!/usr/bin/env bash
# What half and double of each parameter change, of every scenario in short form with three seeds.
#
#   parameters.sh DIR   DIR gets sensitivity.md, which also becomes docs/parameters.md, and sensitivity.json
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

out=${1:?usage: parameters.sh DIR}
cargo build --release --locked -p sluicegate
shopt -s extglob
target/release/sluicegate sensitivity scenarios/*.toml scenarios/!(lab-only)/*.toml --short --repeat 3 --out "$out"
cp "$out/sensitivity.md" docs/parameters.md
