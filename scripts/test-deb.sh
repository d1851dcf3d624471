#!/usr/bin/env bash
# The life of the Debian package: built twice, looked into, and installed, upgraded, removed and
# purged in a copy of this system that sees none of this machine's processes, interfaces and pins,
# and vanishes with the test. Needs root.
#
#   test-deb.sh BINARY DIR   packages and what is in them go to DIR
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# How exposed systemd may call the services, in tenths of its scale to 10.
EXPOSURE_MAX=25
# These packages are not for keeping: they are packed quickly (dpkg-deb(1)).
export DPKG_DEB_COMPRESSOR_LEVEL=1

usage="usage: test-deb.sh BINARY DIR"
binary=$(readlink -f "${1:?$usage}")
out=$(mkdir -p "${2:?$usage}" && readlink -f "$2")
cd "$SG_ROOT"

# Lists the contents of the package, without installing it.
look_into() {
	local page said root=$out/contents
	rm -rf "$root"
	dpkg-deb -x "$1" "$root"
	for page in "$root"/usr/share/man/man1/*.1.gz; do
		said=$(MANWIDTH=80 LC_ALL=C.UTF-8 man --warnings -l "$page" 2>&1 >"$out/page")
		[ -z "$said" ] || die "${page##*/}: $said"
		grep -q '^NAME' "$out/page" || die "${page##*/}: no page"
	done
	[ -f "$root/usr/share/man/man1/sluicegate-agent.1.gz" ] || die "the agent has no page"
	bash -n "$root/usr/share/bash-completion/completions/sluicegate"
	grep -q '^#compdef sluicegate' "$root/usr/share/zsh/vendor-completions/_sluicegate"
	grep -q 'complete -c sluicegate' "$root/usr/share/fish/vendor_completions.d/sluicegate.fish"
	local service
	for service in sluicegate.service sluicegate-switch.service; do
		systemd-analyze security --offline=true --root="$root" --threshold="$EXPOSURE_MAX" --no-pager "$service" | tail -n 1
	done
}

package=$(DEB_VERSION=1.0~test1 scripts/deb.sh "$binary" "$out")
again=$(DEB_VERSION=1.0~test1 scripts/deb.sh "$binary" "$out/again")
cmp "$package" "$again" || die "the same command makes two packages"
next=$(DEB_VERSION=1.0~test2 scripts/deb.sh "$binary" "$out")
look_into "$package"
exec unshare --mount --net --pid --fork --kill-child scripts/test-deb-life.sh "$package" "$next"
