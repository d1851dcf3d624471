#!/usr/bin/env bash
# Every scenario in full length with its expectations, one after another.
#
#   experiments.sh DIR   one directory per scenario goes there
set -uo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT" || exit 1

out=${1:?usage: experiments.sh DIR}
[ "$(id -u)" -eq 0 ] || die "experiments need root: they load kernel programs and build network namespaces"

scripts/setup.sh test || exit 1
. scripts/env.sh
cargo build --release --locked -p sluicegate || exit 1

# A run that is interrupted cleans up and ends by itself; then nothing else begins.
trap 'exit 130' INT TERM

passed=0 failed=0
rows=()
# experiment WORLD FILE: runs it and notes what became of it.
experiment() {
	local world=$1 file=$2 name start=$SECONDS verdict=FAILED
	name=$(basename "$file" .toml)
	say "$name"
	if target/release/sluicegate run "$file" --world "$world" --check --out "$out/$name"; then
		verdict=ok
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
	rows+=("$(printf '%-30s %-4s %-6s %5s s  %s' "$name" "$world" "$verdict" $((SECONDS - start)) "$out/$name/report.html")")
}

for file in scenarios/*.toml; do
	experiment lab "$file"
done
# At the papers' own scale, which no lab of a few CPUs carries.
for file in scenarios/*/*.toml; do
	experiment sim "$file"
done

say "experiments"
printf '%s\n' "${rows[@]}"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
