#!/usr/bin/env bash
# What cargo has built of other people's crates, kept outside the checkout: a quarter of a build from
# a clean checkout, and what clippy checks of them. The project's own crates are never kept.
#
#   crates-cache.sh restore   into a target directory that has none yet
#   crates-cache.sh save      unless they are there
#
# A directory for each set of versions, compiler and flags; the newest two stay. Without root, or
# where SG_CACHE cannot be written, nothing is kept.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

KEPT=2
built=$SG_TARGET/release
crates=$SG_CACHE/crates

# All that decides what is built of them, as one word.
key() {
	{
		rustc -vV
		echo "${RUSTFLAGS:-} ${CARGO_HOME:-$HOME/.cargo}"
		sed -n '/^\[profile/,$p' Cargo.toml
		cat Cargo.lock
	} | sha256sum | cut -c1-16
}

# Paths below the directory of a build that belong to crates of others, with NUL between them:
# each unit has a directory NAME-HASH, and files whose names have its hash.
foreign_units() {
	find .fingerprint build -mindepth 1 -maxdepth 1 ! -name 'sluicegate*' -print0
	find .fingerprint -mindepth 1 -maxdepth 1 ! -name 'sluicegate*' -printf '%f\n' |
		sed 's/.*-//' | sort -u >"$hashes"
	find deps -type f -print | awk '
		NR == FNR { unit[$0] = 1; next }
		match($0, /-[0-9a-f]+(\.[a-z]+)*$/) {
			hash = substr($0, RSTART + 1); sub(/\..*/, "", hash)
			if (hash in unit) printf "%s%c", $0, 0
		}' "$hashes" -
}

restore() {
	if [ -d "$built/.fingerprint" ] || [ ! -d "$here" ]; then return; fi
	mkdir -p "$built"
	cp -a "$here/." "$built/"
	touch "$here"
	echo "crates of others: as built before ($here)"
}

save() {
	[ ! -d "$here" ] || return 0
	mkdir -p "$crates" 2>/dev/null && [ -w "$crates" ] || return 0
	hashes=$(mktemp)
	part=$here.part-$$
	trap 'rm -rf "$hashes" "$part"' EXIT
	mkdir "$part"
	(cd "$built" && foreign_units | xargs -0 cp -a --parents -t "$part")
	mv -T "$part" "$here"
	# shellcheck disable=SC2012 # names of our own making
	ls -dt "$crates"/* | tail -n +$((KEPT + 1)) | xargs -r rm -rf --
	echo "crates of others: kept in $here"
}

here=$crates/$(key)
case ${1:-} in
restore | save) "$1" ;;
*) die "usage: crates-cache.sh restore|save" ;;
esac
