#!/usr/bin/env bash
# `make release-check`: the files of this checkout, built once more in another folder, are the same bytes as those in FOLDER.
#
#   check.sh FOLDER
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/../../tests/lab/lib.sh"
first=$(realpath "$1")
cd "$top"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --no-dereference -t "$copy"
export SOURCE_DATE_EPOCH DLX_TEST_LAB=$lab CARGO_TARGET_DIR=$copy/target
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
"$copy/deploy/release/build.sh" "$copy/dist" >/dev/null
diff "$first/SHA256SUMS" "$copy/dist/SHA256SUMS" || die 'two builds differ'
say "$(wc -l <"$first/SHA256SUMS") files are the same in both builds"
