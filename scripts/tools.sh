#!/usr/bin/env bash
# Installs what tests run with and Debian does not have, in versions with hashes
# (tools-requirements.txt), into tools/bin of the cache, or of the target directory where the cache
# cannot be written. scripts/env.sh puts both into PATH.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

REQUIREMENTS=scripts/tools-requirements.txt
# Older ones do not read .config/nextest.toml.
OLDEST=$(sed -n 's/^nextest-version = "\(.*\)"/\1/p' .config/nextest.toml)

# nextest_ok: the one in PATH is new enough.
nextest_ok() {
	local have
	have=$(cargo-nextest --version 2>/dev/null | sed -n '1s/^cargo-nextest \([0-9.]*\).*/\1/p') || return 1
	[ -n "$have" ] && [ "$(printf '%s\n' "$OLDEST" "$have" | sort -V | head -n 1)" = "$OLDEST" ]
}

! nextest_ok || exit 0
tools=$SG_CACHE/tools
mkdir -p "$tools/bin" 2>/dev/null && [ -w "$tools/bin" ] || tools=$SG_TARGET/tools
mkdir -p "$tools/bin"
say "installing cargo-nextest into $tools"
if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
	[ "$(id -u)" -eq 0 ] || die "python3-venv is missing; as root: apt-get install --no-install-recommends python3-venv"
	DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends --no-remove \
		-o DPkg::Lock::Timeout=600 install python3-venv </dev/null
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-deps --only-binary :all: --require-hashes -r "$REQUIREMENTS" ||
	die "pip could not install cargo-nextest; see its message above, or install $OLDEST or newer by other means (https://nexte.st)"
install -m 755 "$work/venv/bin/cargo-nextest" "$tools/bin/cargo-nextest"
hash -r
nextest_ok || die "$tools/bin/cargo-nextest does not run here"
