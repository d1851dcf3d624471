#!/usr/bin/env bash
# Builds the documentation site from README.md and docs/*.md with MkDocs (mkdocs.yml).
#
#   docs.sh DIR   where the site goes
#
# The first build installs the versions of scripts/docs-requirements.txt from PyPI into
# target/docs-venv. The pages themselves load nothing from the network.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

site=$(realpath -m "${1:?usage: docs.sh DIR}")
venv=target/docs-venv
requirements=scripts/docs-requirements.txt
# MkDocs Material prints an advertisement of its successor otherwise.
export NO_MKDOCS_2_WARNING=1

if ! cmp -s "$requirements" "$venv/installed"; then
	say "installing MkDocs into $venv"
	python3 -m venv --clear "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements"
	cp "$requirements" "$venv/installed"
fi
scripts/check-docs.sh
"$venv/bin/mkdocs" build --quiet --strict --clean --site-dir "$site"
echo "site     $site/index.html"
echo "search needs a server: python3 -m http.server --directory $site"
