#!/usr/bin/env bash
# Finds commands that scripts or the code call and that neither setup.sh installs nor every Debian
# has (packages that are essential or required): such a command is there only where somebody once
# installed it.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

# What a bare machine has or needs first, what comes with the compilers that setup.sh looks for, and
# what tools.sh and the test of the package install.
GIVEN=(git make apt-get apt-cache apt-config cargo rustc rustfmt rustup clang go gofmt cargo-nextest sluicegate)

# Of a script's syntax: its functions and its calls, a line each. What a command runs in its turn is
# a call, too, where it is a plain word.
# shellcheck disable=SC2016 # jq's own names
WORDS='
	def plain: (.Parts // []) | if length == 1 and .[0].Type == "Lit" then .[0].Value else "$" end;
	def calls: .[0], (select(.[0] | IN("exec", "env", "timeout", "xargs", "nice", "unshare")) | .[1:]
		| until(length == 0 or (.[0] | test("^([a-z]|\\$$)") and (test("=") | not)); .[1:])
		| select(length > 0) | calls);
	.. | objects
	| if .Type? == "FuncDecl" then "function " + .Name.Value
		elif .Type? == "CallExpr" and (.Args | length? // 0) > 0 then [.Args[] | plain] | "call " + calls
		else empty end'

# "function NAME FILE" and "call NAME FILE", a line each, of every script but those that run in
# machines that have busybox alone.
words_of_scripts() {
	local file
	for file in .ci/run $(find scripts bench fuzz -name '*.sh' -not -path '*/target/*'); do
		[ "$(head -n 1 "$file" | cut -c1-14)" != '#!/bin/busybox' ] || continue
		shfmt --to-json <"$file" | jq -r "$WORDS" | sed "s|\$| $file|"
	done
}

# In the code: programs by name or by a constant of the file, and those of helpers that take a program
# and a list of arguments.
# shellcheck disable=SC2016 # perl's own names
PROGRAMS='
	print "call $1 $ARGV\n" while /\bCommand::new\(\s*"([\w.-]+)"/g;
	print "call $1 $ARGV\n" while /\brun\(\s*"([a-z][\w.-]*)",\s*&?(?:vec!)?\[\s*(?:&?"|&?format)/g;
	while (/\bCommand::new\(\s*([A-Z_]+)\s*\)/g) {
		my $name = $1;
		print "call $1 $ARGV\n" if /\bconst $name: &(?:\x27static )?str = "([\w.-]+)"/;
	}'

# "call NAME FILE" of the code.
words_of_code() {
	find crates bench fuzz -name '*.rs' -not -path '*/target/*' -print0 | xargs -0 perl -0777 -ne "$PROGRAMS"
}

# The packages that every machine has, and those and the commands that setup.sh needs by name.
known() {
	dpkg-query -W -f '${Package} ${Essential} ${Priority}\n' | awk '/ yes | required$/ { print $1 }'
	sed -nE 's/.*\bneed(_command)? ("[^"]*"|[^ ]+)( ("[^"]*"|[^ ]+))?.*/\2\n\4/p' scripts/setup.sh
}

# "COMMAND PACKAGE", a line each, of the commands that are packaged. dpkg knows files by the places
# that they had before /bin became /usr/bin.
packaged() {
	local command path
	for command in "$@"; do
		path=$(command -v "$command") || continue
		printf '%s\n' "$path" "${path#/usr}" "$(readlink -f "$path")" | sort -u | sed "s|\$| $command|"
	done | sort >"$work/paths"
	{ cut -d' ' -f1 "$work/paths" | xargs dpkg-query -S 2>/dev/null || true; } | grep -v '^diversion' |
		sed -E 's/^([^:,]*)[^/]*: (.*)/\2 \1/' | sort | join -o 1.2,2.2 "$work/paths" -
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{ words_of_scripts && words_of_code; } >"$work/words"
{
	sed -n 's/^function \([^ ]*\).*/\1/p' "$work/words"
	compgen -bk
	printf '%s\n' "${GIVEN[@]}"
	known
} | sort -u >"$work/known"
sed -n 's/^call \([A-Za-z][A-Za-z0-9_.-]*\) .*/\1/p' "$work/words" | sort -u | comm -23 - "$work/known" >"$work/open"
mapfile -t open <"$work/open"
packaged "${open[@]}" | sort -k 2 | join -1 2 - "$work/known" | cut -d' ' -f2 | sort -u >"$work/installed"
comm -23 "$work/open" "$work/installed" >"$work/found"
while read -r command; do
	files=$(sed -n "s/^call $command //p" "$work/words" | sort -u)
	echo "$command: scripts/setup.sh does not install it; it is called by ${files//$'\n'/, }" >&2
done <"$work/found"
[ ! -s "$work/found" ]
