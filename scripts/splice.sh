#!/usr/bin/env bash
# Puts generated text into a page.
#
#   COMMAND | splice.sh PAGE NAME   replaces what stands between the lines `<!-- NAME: generated -->` and
#                                   `<!-- NAME: end -->` of PAGE; a PAGE without both is left as it is, with exit code 1
set -euo pipefail

page=${1:?usage: splice.sh PAGE NAME}
name=${2:?usage: splice.sh PAGE NAME}
begin="<!-- $name: generated -->"
end="<!-- $name: end -->"

for line in "$begin" "$end"; do
	grep -qxF -- "$line" "$page" || {
		echo "$page: there is no line $line to generate text at" >&2
		exit 1
	}
done

new=$(mktemp "$page.XXXXXX")
trap 'rm -f "$new"' EXIT
sed "/^$begin\$/q" "$page" >"$new"
printf '\n' >>"$new"
cat >>"$new"
printf '\n' >>"$new"
sed -n "/^$end\$/,\$p" "$page" >>"$new"
# The page keeps its owner and mode.
cat "$new" >"$page"
