#!/usr/bin/env bash
# Everything that can be checked without running anything. Reports all findings,
# then fails if there was one.
#
#   lint.sh [BASE]   BASE: only what concerns files that have changed since that commit
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

LINES_MAX=900
COMMENT_MAX=100
WARNINGS=(-std=c11 -Wall -Wextra -Werror)
failed=0

fail() {
	printf 'lint: %s\n' "$*" >&2
	failed=1
}

# sources PATTERN…: the project's own files with such names.
sources() {
	local pattern
	for pattern in "$@"; do
		find crates fuzz bench scripts -name "$pattern" -not -path '*/target/*'
	done
}

# compile_alone HEADER COMPILER FLAGS…: the header needs nothing included before it.
compile_alone() {
	local header=$1
	shift
	printf '#include <%s>\n' "${header#crates/core/c/}" |
		"$@" "${WARNINGS[@]}" -ffreestanding -O2 -Icrates/core/c -x c -c -o /dev/null - ||
		fail "$header does not compile alone with: $*"
}

lint_headers() {
	local header
	for header in crates/core/c/sluice/*.h; do
		compile_alone "$header" gcc
		compile_alone "$header" "$SG_CLANG"
		compile_alone "$header" "$SG_CLANG" -target bpf -mcpu=v3 -g
	done
}

lint_licences() {
	local file licence
	for file in $(sources '*.[ch]'); do
		case $file in
		crates/trace/* | crates/labkit/c/*) licence='Apache-2.0' ;;
		*) licence='BSD-2-Clause OR GPL-2.0-only' ;;
		esac
		head -1 "$file" | grep -qF "SPDX-License-Identifier: $licence" ||
			fail "$file:1: no SPDX line of its room"
	done
}

# The library that records MPI programs is compiled where it is used, with whatever mpicc that is.
lint_interposer() {
	if ! command -v mpicc >/dev/null; then
		echo "lint: skipped: crates/trace/c, for want of mpicc" >&2
		return
	fi
	mpicc "${WARNINGS[@]}" -D_GNU_SOURCE -O2 -fPIC -shared -o /dev/null crates/trace/c/*.c -lpthread ||
		fail "crates/trace/c does not compile"
}

lint_lengths() {
	local file lines
	for file in $(sources '*.rs' '*.[ch]' '*.sh') foreign/*/*.[ch] foreign/*/*/*.{rs,go}; do
		lines=$(wc -l <"$file")
		[ "$lines" -le "$LINES_MAX" ] || fail "$file: $lines lines, more than $LINES_MAX: split it"
	done
}

# Of a crate whose tests are one program, a file that it does not name would never run.
lint_tests() {
	local all file name
	for all in crates/*/tests/all.rs; do
		for file in "${all%/*}"/*.rs "${all%/*}"/*/{mod,main}.rs; do
			[ -f "$file" ] || continue
			name=${file#"${all%/*}/"}
			grep -qx "mod ${name%%[./]*};" "$all" || grep -qx "path = \"tests/$name\"" "${all%/*/*}/Cargo.toml" ||
				fail "$file: not a module of $all, so that its tests never run"
		done
	done
}

# Of a crate whose manifest has `doctest = false`, which spares rustdoc its reading, an example in the
# documentation would never run.
lint_examples() {
	local manifest found
	for manifest in crates/*/Cargo.toml; do
		found=$(find "${manifest%/*}/src" -name '*.rs' -exec awk '
			FNR == 1 { inside = 0 }
			!/^[ \t]*\/\/[\/!] ?```/ { next }
			!inside && /```(rust|no_run|should_panic|compile_fail)?[ \t]*$/ { print FILENAME ":" FNR }
			{ inside = !inside }' {} +)
		if grep -qx 'doctest = false' "$manifest"; then
			[ -z "$found" ] || fail "examples that never run, for $manifest has doctest = false: $found"
		elif [ -f "${manifest%/*}/src/lib.rs" ]; then
			[ -n "$found" ] || fail "$manifest: no example is in this crate's documentation; set doctest = false"
		fi
	done
}

# Tables and pictures may be longer. Characters are counted, not bytes; a tab is eight of them.
lint_comments() {
	local found
	found=$(sources '*.rs' '*.[ch]' | LC_ALL=C xargs awk -v max="$COMMENT_MAX" '
		FNR == 1 { code = 0 }
		/^[ \t]*\/\/[\/!]? *```/ { code = !code }
		code || !/^[ \t]*(\/\/|\/?\* )/ || /^[ \t]*\/\/[\/!]? *\|/ { next }
		{ gsub(/[\200-\277]/, ""); gsub(/\t/, "        ") }
		length > max { print FILENAME ":" FNR ": a comment of " length " characters, more than " max }')
	[ -z "$found" ] || fail "comments:"$'\n'"$found"
}

lint_commands() {
	scripts/check-commands.sh || fail "commands that setup.sh does not install"
}

lint_docs() {
	scripts/check-docs.sh || fail "documents: links, anchors or lists"
}

# Without clippy the rest is checked, and the lack is said.
lint_rust() {
	local fuzzer
	cargo fmt --all --check || fail "cargo fmt --all would change files"
	for fuzzer in goal switch; do
		cargo fmt --check --manifest-path "fuzz/$fuzzer/Cargo.toml" || fail "cargo fmt would change fuzz/$fuzzer"
	done
	if cargo clippy --version >/dev/null 2>&1; then
		cargo clippy --workspace --all-targets --release --locked -- -D warnings || fail "clippy"
	else
		echo "lint: skipped: no clippy for this cargo (rustup component add clippy; Debian 12: rust-web-clippy)" >&2
	fi
}

# Let chains need Rust 1.88, and no compiler of today says so: only the older edition's parser does.
lint_msrv() {
	local files found
	mapfile -t files < <(sources '*.rs')
	found=$(rustfmt --edition 2021 --check "${files[@]}" 2>&1 |
		sed -n '/let chains are only allowed/,/-->/ s/^ *--> //p' | sort -u) || true
	[ -z "$found" ] || fail "let chains, which Rust 1.$SG_RUST_MINOR does not know: $found"
}

# Tenants of other makes are built by themselves, each with its own tools. Go is there where tests
# were set up.
lint_foreign() {
	local manifest=foreign/smoltcp/Cargo.toml found
	cargo fmt --check --manifest-path "$manifest" || fail "cargo fmt would change foreign/smoltcp"
	if cargo clippy --version >/dev/null 2>&1; then
		cargo clippy --release --locked --manifest-path "$manifest" --target-dir "$SG_TARGET/foreign/build" -- -D warnings ||
			fail "clippy in foreign/smoltcp"
	fi
	command -v gofmt >/dev/null || return 0
	found=$(gofmt -l foreign/go)
	[ -z "$found" ] || fail "gofmt would change $found"
}

# Without BASE, or where BASE is no commit of this repository, everything may have changed.
touched() { # touched PATTERN: a path that matches it is among those that may have changed
	[ -z "$base" ] || grep -qE "$1" <<<"$changed"
}

base=${1:-}
[ -z "$base" ] || changed=$(git diff --name-only "$base" -- && git ls-files --others --exclude-standard) || base=
lint_licences
lint_lengths
lint_tests
lint_examples
lint_comments
! touched '^crates/core/c/' || lint_headers
! touched '^crates/trace/c/' || lint_interposer
! touched '\.md$|^crates/(core/c|agent/bpf)/' || lint_docs
! touched '\.(sh|rs)$' || lint_commands
! touched '\.(rs|[ch])$|Cargo\.(toml|lock)$' || lint_rust
! touched '^foreign/' || lint_foreign
! touched '\.rs$' || lint_msrv
exit "$failed"
