#!/usr/bin/env bash
# `make test`: every check, what fails fastest first. All run, even after a failure; each leaves its output in .lab/test/.
# The last line counts tests; a check that is not made of tests (format, lints, ...) counts as one.
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$top"

tree() { git status --porcelain 2>/dev/null || true; }
before=$(tree)
logs=$lab/test
rm -rf "$logs"
mkdir -p "$logs"
# The demonstration may run beside a proxy that somebody is using.
free=$(free_ports 2)
read -r listen admin <<<"$free"
LISTEN=127.0.0.1:$listen ADMIN=127.0.0.1:$admin
export LISTEN ADMIN

# The sum of what cargo ("test result: ok. 3 passed; 0 failed; ...") and pytest ("2 failed, 3 passed in 1.0s") say in a log.
counted() { # WORD LOG
  { grep -hE '^test result: |^=* ?([0-9]+ [a-z]+,? )+in [0-9.]+' "$2" || true; } | { grep -oE "[0-9]+ $1" || true; } | awk '{n += $1} END {print n + 0}'
}

# The first words of what failed, few enough to stand at the end beside the table: that may be all that anybody is shown.
why() { # LOG
  local words
  words=$(awk '
    /^thread .* panicked at/ {more = 4}
    /^ *(stack backtrace:|note: run with.*)?$/ {more = 0}
    (more-- > 0 || /^E  +[^ ]|^FAILED |^error/) && !seen[$0]++ && n++ < 16 {print "  " substr($0, 1, 240)}' "$1")
  echo "${words:-$(tail -n 16 "$1")}"
}

passed=0 failed=0 ignored=0 table='' reasons=''
step() { # NAME COMMAND...
  local name=$1 log=$logs/$1.log started=$SECONDS code=0 p f verdict=ok
  shift
  printf '\n== %s\n' "$name"
  "$@" 2>&1 </dev/null | tee "$log" || code=$?
  p=$(counted passed "$log")
  f=$(($(counted failed "$log") + $(counted 'errors?' "$log")))
  ignored=$((ignored + $(counted 'ignored' "$log") + $(counted skipped "$log")))
  if [[ $code == 0 && $p == 0 ]]; then p=1; fi
  if [[ $code != 0 && $f == 0 ]]; then f=1; fi
  if [[ $f != 0 ]]; then
    verdict="FAILED, see $log"
    reasons+=$(printf '\n%s failed:\n' "$name" && why "$log")$'\n'
  fi
  passed=$((passed + p)) failed=$((failed + f))
  table+=$(printf '  %-15s %4d s  %s' "$name" $((SECONDS - started)) "$verdict")$'\n'
}

nothing_left_behind() {
  local after; after=$(tree)
  [[ $after == "$before" ]] || { echo 'the tests changed the working tree:'; diff <(echo "$before") <(echo "$after"); return 1; }
}

for target in setup fmt-check lint doc unit simulate broker differential generated faults-once clients languages deploy-check demo bench-once; do step "$target" make --no-print-directory "$target"; done
step nothing-left nothing_left_behind

printf '\n%s%s\n%d passed, %d failed' "$table" "$reasons" "$passed" "$failed"
if [[ $ignored != 0 ]]; then printf ', %d ignored' "$ignored"; fi
echo
[[ $failed == 0 ]]
