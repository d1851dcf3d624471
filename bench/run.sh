#!/usr/bin/env bash
# A benchmark on this kernel: bench/enforce/, bench/scale/, bench/hostile/ or bench/switch/.
#
#   run.sh enforce DIR [--pairs N] [--seconds S]
#   run.sh scale DIR [--flows N] [--rate PACKETS] [--turnover N] [--syns N]
#   run.sh hostile DIR [--attacks NAMES] [--seconds S] [--repeats N] [--rate MBPS] [--check]
#   run.sh switch DIR [--rounds N] [--seconds S] [--arms NAMES] [--switch PROGRAM]
#   run.sh switch-hostile DIR [--rounds N] [--frames N]
#
# Leaves results.json in DIR.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/env.sh"
cd "$SG_ROOT"

usage="usage: run.sh enforce|scale|hostile|switch|switch-hostile DIR [ARGUMENTS…]"
name=${1:?$usage}
out=${2:?$usage}
shift 2
[ "$(id -u)" -eq 0 ] || die "this benchmark needs root: it loads kernel programs and builds network namespaces"
case $name in
switch) scripts/setup.sh switch ;;
*) scripts/setup.sh demo ;;
esac
# setup may have installed the first usable cargo and clang
# shellcheck source=scripts/env.sh
. scripts/env.sh
mkdir -p "$out"
case $name in
hostile) package=sluicegate-labkit ;;
switch | switch-hostile) package=sluicegate-dataplane ;;
*) package=sluicegate-agent ;;
esac
cargo bench --locked -p "$package" --bench "$name" -- --out "$(readlink -f "$out")" "$@"
