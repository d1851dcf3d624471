#!/usr/bin/env bash
# Builds the Debian package of a command that is built already.
#
#   deb.sh BINARY DIR   DIR gets sluicegate_VERSION_ARCHITECTURE.deb; prints its path
#
# DEB_VERSION (default: that in Cargo.toml), DEBFULLNAME and DEBEMAIL go into the package;
# SOURCE_DATE_EPOCH (default: the last commit's) makes its bytes repeatable.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

usage="usage: deb.sh BINARY DIR"
binary=$(readlink -f "${1:?$usage}")
out=$(mkdir -p "${2:?$usage}" && readlink -f "$2")
cd "$SG_ROOT"

version=${DEB_VERSION:-$(sed -n '/^\[workspace.package\]/,/^$/ s/^version = "\(.*\)"/\1/p' Cargo.toml)}
maintainer="${DEBFULLNAME:-The Sluicegate authors} <${DEBEMAIL:-sluicegate@localhost}>"
architecture=$(dpkg --print-architecture)
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
root=$work/debian/sluicegate
share=$root/usr/share
doc=$share/doc/sluicegate

# place MODE SOURCE… DIRECTORY
place() { install -D -m "$1" -t "${@: -1}" "${@:2:$#-2}"; }

# filled TEMPLATE: with its @WORDS@ replaced.
filled() {
	sed -e "s|@VERSION@|$version|" -e "s|@ARCHITECTURE@|$architecture|" -e "s|@MAINTAINER@|$maintainer|" \
		-e "s|@DATE@|$(date -Ru -d "@$SOURCE_DATE_EPOCH")|" -e "s|@KILOBYTES@|${kilobytes:-}|" -e "s|@DEPENDS@|${depends:-}|" "$1"
}

program() {
	place 755 "$binary" "$root/usr/bin"
	[ "${binary##*/}" = sluicegate ] || die "$binary: the command is called sluicegate"
	strip --strip-unneeded "$root/usr/bin/sluicegate"
	place 644 dist/systemd/*.service "$root/usr/lib/systemd/system"
	place 644 dist/debian/policy.toml dist/debian/switch.toml "$root/etc/sluicegate"
	install -D -m 644 dist/debian/default "$root/etc/default/sluicegate"
}

manuals() {
	mkdir -p "$share/man/man1"
	"$binary" man --out "$share/man/man1"
	gzip -9n "$share"/man/man1/*.1
	place 644 docs/*.md "$doc"
	place 644 docs/images/* "$doc/images"
	place 644 dist/debian/copyright "$doc"
	filled dist/debian/changelog.in | gzip -9nc >"$doc/changelog.gz"
}

completions() {
	local shell file
	while read -r shell file; do
		mkdir -p "$(dirname "$share/$file")"
		"$binary" completions "$shell" >"$share/$file"
	done <<-END
		bash bash-completion/completions/sluicegate
		zsh zsh/vendor-completions/_sluicegate
		fish fish/vendor_completions.d/sluicegate.fish
	END
}

# Files that an operator may want beside the command.
extras() {
	local directory
	for directory in scenarios dist/grafana; do
		[ ! -d "$directory" ] || (mkdir -p "$share/sluicegate" && cp -r "$directory" "$share/sluicegate/")
	done
}

# libraries: the packages that the command's libraries come from, as dpkg knows them.
libraries() {
	touch "$work/debian/control"
	(cd "$work" && dpkg-shlibdeps -O debian/sluicegate/usr/bin/sluicegate 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

control() {
	local script
	depends=$(libraries)
	[ -n "$depends" ] || die "dpkg-shlibdeps does not say which packages $binary takes"
	kilobytes=$(du -k --apparent-size -s "$root" | cut -f1)
	mkdir "$root/DEBIAN"
	filled dist/debian/control.in >"$root/DEBIAN/control"
	for script in postinst prerm postrm; do
		install -m 755 "dist/debian/$script" "$root/DEBIAN/$script"
	done
	printf '/etc/%s\n' {default/sluicegate,sluicegate/{policy,switch}.toml} >"$root/DEBIAN/conffiles"
	(cd "$root" && find usr etc -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
}

umask 022
program
manuals
completions
extras
control
chmod -R u=rwX,go=rX "$root/usr" "$root/etc"
package=$out/sluicegate_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
