#!/usr/bin/env bash
# Checks README.md and docs/*.md without a network: every relative link leads to a file, every
# anchor to a heading, every list and table begins after an empty line (else the site shows it as
# text), and no line of prose has more than 100 characters. In a table below a line `<!-- verdicts:
# SCENARIO… -->` every `PUBLISHED / OURS` and `PUBLISHED / OURS ± HALF` is a line of those scenarios in
# docs/verdicts.md, in any unit.
#
#   check-docs.sh [FILE…]   lists what is wrong as FILE:LINE, and then exits with 1
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

LENGTH_MAX=100

pages=("$@")
[ ${#pages[@]} -gt 0 ] || pages=(README.md docs/*.md)
failed=0

# Lines without those of code blocks and without code spans, as LINE:TEXT.
prose() {
	awk '/^ *```/ { code = !code; next } !code { gsub(/`[^`]*`/, ""); print NR ":" $0 }' "$1"
}

# Anchors of a page, as code hosts and the site make them: small letters, no punctuation, dashes for
# spaces.
anchors() {
	awk '/^ *```/ { code = !code; next }
	!code && /^#+ / {
		sub(/^#+ +/, "")
		while (match($0, /\]\([^)]*\)/))
			$0 = substr($0, 1, RSTART - 1) substr($0, RSTART + RLENGTH)
		text = tolower($0)
		gsub(/[]!-,.\/:-@\\[^`{|}~]/, "", text)
		gsub(/ /, "-", text)
		print text (seen[text]++ ? "_" seen[text] - 1 : "")
	}' "$1"
}

# LINE:TARGET of each relative link and picture.
links() {
	prose "$1" | grep -oE '^[0-9]+:|\]\([^)[:space:]]+\)|(src|href)="[^"]+"' |
		awk '/^[0-9]+:$/ { line = $0; next } { gsub(/^\]\(|\)$|^(src|href)="|"$/, ""); print line $0 }' |
		grep -vE '^[0-9]+:(https?:|mailto:)' || true
}

complain() {
	printf '%s\n' "$*" >&2
	failed=1
}

check_links() {
	local page=$1 line target file anchor
	while IFS=: read -r line target; do
		file=${target%%#*}
		file=${file:+$(dirname "$page")/$file}
		file=${file:-$page}
		if [ ! -e "$file" ]; then
			complain "$page:$line: $target: no such file"
		elif [[ $target == *'#'* ]]; then
			anchor=${target#*#}
			anchors "$file" | grep -qxF -- "$anchor" || complain "$page:$line: $target: no such heading"
		fi
	done < <(links "$page")
}

check_blocks() {
	local found
	found=$(awk -v page="$1" '
		/^ *```/ { code = !code; last = ""; next }
		code { next }
		/^([-*]|[0-9]+\.) / && last !~ /^$|^ |^#|^([-*]|[0-9]+\.) / { print page ":" NR ": a list without an empty line before it" }
		/^\|/ && last !~ /^$|^#|^\|/ { print page ":" NR ": a table without an empty line before it" }
		{ last = $0 }' "$1")
	[ -z "$found" ] || complain "$found"
}

# Code, tables and pictures may be longer. Characters are counted, not bytes, whatever the awk.
check_lengths() {
	local found
	found=$(LC_ALL=C awk -v page="$1" -v max="$LENGTH_MAX" '
		/^ *```/ { code = !code; next }
		code || /^(\||!\[|#)/ { next }
		{ gsub(/[\200-\277]/, "") }
		length > max { print page ":" NR ": " length " characters, more than " max }' "$1")
	[ -z "$found" ] || complain "$found"
}

# Facts that stand in the code as well: the fields of the example's line in the table of algorithms,
# and the version of the maps' layout.
check_facts() {
	local wanted version
	wanted=$(grep -m 1 -oP '^\tX\(\K.*(?=\) \\$)' crates/core/c/sluice/cc_table.h | awk -F, '{ gsub(/"[^"]*"/, ""); print NF }')
	grep -P '^\tX\(GENTLE' docs/congestion-control.md | awk -F, -v wanted="$wanted" '
		{ gsub(/"[^"]*"/, "") }
		NF != wanted { bad = 1 } END { exit bad || NR != 1 }' ||
		complain "docs/congestion-control.md: the example's line has not the $wanted fields of cc_table.h"
	version=$(awk '$2 == "SG_ABI_VERSION" { print $3 }' crates/agent/bpf/abi.h)
	grep -q "layout ($version in this one)" docs/operators.md ||
		complain "docs/operators.md: the layout's version is $version"
	grep -q "version of the maps' layout, now $version" docs/agent.md ||
		complain "docs/agent.md: the layout's version is $version"
}

# Mean and interval of a figure stand beside it as docs/published.md says: an interval only where it
# is more than 5 % of the mean.
check_verdicts() {
	local found
	found=$(awk -F ' *[|] *' -v page="$1" '
		# A figure as written, "142.2 k" too; LAST is what its last digit is worth.
		function value(text, words, parts) {
			split(text, words, " ")
			LAST = split(words[1], parts, ".") > 1 ? 10 ^ -length(parts[2]) : 1
			if (words[2] != "k") return words[1] + 0
			LAST *= 1000
			return words[1] * 1000
		}
		# Whether two are the same figure, one of them rounded further.
		function near(own, last, other, other_last, factor, off) {
			off = own - other * factor
			other_last *= factor
			return (off < 0 ? -off : off) <= 0.5001 * (last > other_last ? last : other_last)
		}
		# Whether the pair is in line number i.
		function stands(i, unit, factor, wide) {
			for (unit = -3; unit <= 3; unit++) {
				factor = 10 ^ unit
				if (!near(p, p_last, published[i], published_last[i], factor) ||
				    !near(o, o_last, ours[i], ours_last[i], factor)) continue
				wide = ours[i] ? half[i] / ours[i] : 0
				if (h == "" ? wide < 0.051 : wide > 0.049 && near(h, h_last, half[i], half_last[i], factor)) return 1
			}
			return 0
		}
		function check(cell, sides, ends, i) {
			split(cell, sides, " / ")
			split(sides[2], ends, " ± ")
			p = value(sides[1]); p_last = LAST
			o = value(ends[1]); o_last = LAST
			h = ""
			if (ends[2] != "") { h = value(ends[2]); h_last = LAST }
			for (i = 1; i <= lines; i++)
				if (index(scenarios, " " scenario[i] " ") && stands(i)) return
			print page ":" FNR ": " cell ": docs/verdicts.md has no such figure of" scenarios
		}
		FNR == NR {
			if (NF < 8 || $4 !~ /^[-0-9]/) next
			scenario[++lines] = $2
			split($5, mean, " ± ")
			published[lines] = value($4); published_last[lines] = LAST
			ours[lines] = value(mean[1]); ours_last[lines] = LAST
			half[lines] = value(mean[2] == "" ? "0" : mean[2]); half_last[lines] = LAST
			next
		}
		/^<!-- verdicts:/ { scenarios = $0; gsub(/^<!-- verdicts:|-->$/, "", scenarios); rows = 0; next }
		/^\|/ && scenarios != "" {
			if (++rows == 1) split($0, heading)
			for (i = 2; i < NF; i++)
				if ($i ~ /^[0-9.]+ \/ [0-9.]+( ± [0-9.]+)?$/ && heading[i] !~ / \/ /) check($i)
			next
		}
		rows { scenarios = "" }' docs/verdicts.md "$1")
	[ -z "$found" ] || complain "$found"
}

check_facts
for page in "${pages[@]}"; do
	check_links "$page"
	check_blocks "$page"
	check_lengths "$page"
	check_verdicts "$page"
done
exit "$failed"
