#!/usr/bin/env bash
# The main job on this machine's own kernel: set up, build, rehearse two
# scenarios, one comparison table and one report.
#
#   demo.sh DIR   where results go
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

out=${1:?usage: demo.sh DIR}
sluicegate=target/release/sluicegate
scenarios=(scenarios/five-stacks.toml scenarios/incast-1500.toml)

if [ "$(id -u)" -ne 0 ]; then
	echo "The demo needs root: it loads kernel programs and builds network namespaces." >&2
	scripts/setup.sh demo || true
	[ ! -x "$sluicegate" ] || "$sluicegate" doctor >&2 || true
	die "run it as root: sudo make demo"
fi

scripts/setup.sh demo
# setup may have installed the first usable cargo and clang
. scripts/env.sh
say "building (a few minutes the first time)"
cargo build --release --locked -p sluicegate

say "what this kernel supports"
"$sluicegate" doctor || die "this kernel lacks what the demo needs; each line above says what it costs and how to get it"

built=$SECONDS
say "rehearsing ${scenarios[*]}"
"$sluicegate" run "${scenarios[@]}" --out "$out"
say "done in $((SECONDS - built)) s after the build"
printf 'results  %s\n' "$out"/*/results.json
echo "report   $(readlink -f "$out/report.html")"
