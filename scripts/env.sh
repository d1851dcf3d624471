# shellcheck shell=bash
# Where the tools are. Sourced by every script; changes nothing on the machine.

# A service manager or CI may start us without HOME, or with a PATH without sbin.
if [ -z "${HOME:-}" ]; then
	HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
	export HOME="${HOME:-/}"
fi
case ":${PATH:=/usr/local/bin:/usr/bin:/bin}:" in
*:/usr/sbin:*) ;;
*) PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" ;;
esac
export PATH

SG_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export SG_ROOT
# Where cargo builds, and what outlives a checkout: kernels, crates of others, tools.
SG_TARGET=${CARGO_TARGET_DIR:-$SG_ROOT/target}
SG_CACHE=${SG_CACHE:-/var/cache/sluicegate}
export SG_TARGET SG_CACHE
case ":$PATH:" in
*":$SG_CACHE/tools/bin:$SG_TARGET/tools/bin:"*) ;;
*) PATH="$PATH:$SG_CACHE/tools/bin:$SG_TARGET/tools/bin" ;;
esac

# Oldest versions that build the project: rust-version in Cargo.toml; clang 16 is
# the first in Debian 12 whose BPF back end knows what the programs use.
SG_RUST_MINOR=$(sed -n 's/^rust-version = "1\.\([0-9]*\)"/\1/p' "$SG_ROOT/Cargo.toml")
SG_CLANG_MAJOR=16
export SG_RUST_MINOR SG_CLANG_MAJOR

# sg_rust_ok CARGO: true when CARGO and the rustc beside it are new enough.
sg_rust_ok() {
	local bin version
	bin=$(command -v "$1") || return 1
	for version in "$("$bin" --version 2>/dev/null)" \
		"$(PATH="$(dirname "$bin"):$PATH" rustc --version 2>/dev/null)"; do
		version=$(sed -n 's/^[a-z]* 1\.\([0-9]*\).*/\1/p' <<<"$version")
		[ "${version:-0}" -ge "$SG_RUST_MINOR" ] || return 1
	done
}

# Puts a usable cargo first in PATH: the caller's own, else rustup's, else Debian's.
sg_find_cargo() {
	local dir
	sg_rust_ok cargo && return 0
	for dir in "${CARGO_HOME:-$HOME/.cargo}/bin" /usr/bin; do
		if [ -x "$dir/cargo" ] && sg_rust_ok "$dir/cargo"; then
			PATH="$dir:$PATH"
			return 0
		fi
	done
	return 1
}

# Prints the major version of compiler $1, 0 when it does not run.
sg_clang_version() {
	local major
	major=$("$1" -dumpversion 2>/dev/null | cut -d. -f1)
	echo "${major:-0}"
}

# Sets SG_CLANG to $CLANG or the newest clang that is new enough.
sg_find_clang() {
	local name
	SG_CLANG=
	for name in ${CLANG:+"$CLANG"} clang-{25..16} clang; do
		if [ "$(sg_clang_version "$name")" -ge "$SG_CLANG_MAJOR" ]; then
			SG_CLANG=$(command -v "$name")
			export SG_CLANG
			return 0
		fi
	done
	return 1
}

# Whether clang $1 can link a libFuzzer target with sanitizers.
sg_clang_has_fuzzer() {
	[ -n "$1" ] && [ -n "$(find "$("$1" -print-resource-dir 2>/dev/null)/lib" \
		-name 'libclang_rt.fuzzer*.a' -print -quit 2>/dev/null)" ]
}

# say WORDS…: a headline of progress.
say() { printf '\n==> %s\n' "$*"; }

# die WORDS…: an error that says what to do.
die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

# not_accepted SAID: what `sluicegate run --check` has said on standard error that it does not
# accept, a line each.
not_accepted() { sed -n '/^check failed: /,$ { s/^check failed: //; s/^  //; p }' "$1"; }

# disturbed OUTPUT: whether a run with --check has measured that something else had the machine: its
# CPUs were busy, the hypervisor took more than 5 % of one in a second, or packets were lost between
# namespaces (counters that end in _dropped). What TCP's counters show without a cause is no such
# measurement. `disturbed` of crates/lab/examples/foreign decides the same.
disturbed() {
	grep -qE ': the CPU was the bottleneck even at |: [a-z]+_dropped = |^note: the hypervisor took ' "$1"
}

sg_find_cargo || true
sg_find_clang || true
# The clang that builds BPF objects is the one that was checked here.
[ -z "$SG_CLANG" ] || export CLANG="$SG_CLANG"
