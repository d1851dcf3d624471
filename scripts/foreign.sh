#!/usr/bin/env bash
# TCP of other makes under enforcement: gVisor's, lwIP's and smoltcp's stacks, and QUIC beside it.
#
#   foreign.sh build                          builds the programs in foreign/
#   foreign.sh DIR [short|long] [unenforced] [step] [STACK[:ROLE]…]
#                                             and runs them (root); figures go to DIR/foreign.json
#
# Each sends to Linux and receives from it beside three flows of Linux: what must hold is in
# docs/lab.md.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

PROGRAMS=$SG_TARGET/foreign

# The oldest Go that the modules can do with, MAJOR.MINOR.PATCH.
wanted_go() { sed -n 's/^go \([0-9.]*\)$/\1/p' foreign/go/go.mod; }

# older A B: version A is older than B.
older() { [ "$1" != "$2" ] && [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# Puts a Go that is new enough first: the one that is there, or what it fetches as a module of Go's
# own. From 1.21 on it does so by itself; Debian 12's is older and has to be told.
find_go() {
	local wanted have module
	wanted=$(wanted_go)
	command -v go >/dev/null || PATH="$PATH:/usr/local/go/bin:/usr/lib/go/bin"
	command -v go >/dev/null || die "Go is missing; scripts/setup.sh test installs it"
	have=$(GOTOOLCHAIN=local go version | sed -n 's/^go version go\([0-9.]*\).*/\1/p')
	older "$have" "$wanted" || return 0
	export GOTOOLCHAIN=auto
	older "$have" 1.21 || return 0
	module=golang.org/toolchain@v0.0.1-go$wanted.linux-$(go env GOARCH)
	module=$(cd / && go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
	[ -n "$module" ] || die "Go $have is older than $wanted, which it could not fetch"
	# Modules have no executable files.
	chmod +x "$module"/bin/* "$module"/pkg/tool/*/*
	PATH="$module/bin:$PATH" GOTOOLCHAIN=local
}

build_go() {
	find_go
	(cd foreign/go && CGO_ENABLED=0 go build -buildvcs=false -trimpath -o "$PROGRAMS/" ./gvisor ./quicgo)
}

build_smoltcp() {
	cargo build --release --locked --manifest-path foreign/smoltcp/Cargo.toml --target-dir "$PROGRAMS/build"
	cp "$PROGRAMS/build/release/smoltcp" "$PROGRAMS/"
}

build_lwip() {
	gcc -O2 -std=gnu11 -Wall -Wextra -Werror -I/usr/include/lwip foreign/lwip/lwip.c \
		-o "$PROGRAMS/lwip" -llwip -lpthread
}

build() {
	mkdir -p "$PROGRAMS"
	build_go
	build_smoltcp
	build_lwip
}

case ${1:-} in
'') die "usage: foreign.sh build | foreign.sh DIR [short|long] [unenforced] [step] [STACK[:ROLE]…]" ;;
build)
	build
	exit
	;;
esac

out=$1
shift
build
mkdir -p "$out"
# With the whole workspace features are those of the tests' build, and nothing is compiled twice.
cargo build --release --locked --workspace --example foreign
exec "$SG_TARGET/release/examples/foreign" "$PROGRAMS" "$out/foreign.json" "$@"
