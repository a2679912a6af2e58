#!/usr/bin/env bash
# `make test`: every check. All run, even after a failure; each leaves its output in .lab/test/.
# `make soak` gives other targets of the Makefile, each with its variables: test.sh "simulate SEEDS=100000" ...
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
    /^---- .* ----$/ {more = 12}
    /^ *(stack backtrace:|note: run with.*)?$/ {more = 0}
    (more-- > 0 || /^E  +[^ ]|^FAILED |^error/) && !seen[$0]++ && n++ < 24 {print "  " substr($0, 1, 240)}' "$1")
  echo "${words:-$(tail -n 16 "$1")}"
}

# Ticks of all processors since the machine started: working, idle. A step that leaves them idle waits for something.
ticks() { awk '/^cpu / {print $2 + $3 + $4 + $7 + $8, $5 + $6}' /proc/stat; }
busy_since() { # WORKING IDLE: per cent
  ticks | awk -v w="$1" -v i="$2" '{w = $1 - w; i = $2 - i; printf "%d", w + i ? 100 * w / (w + i) : 0}'
}

passed=0 failed=0 ignored=0 table='' reasons=''
# Runs a step, and keeps beside its log how it ended: its code, its seconds, how busy the processors were.
run() { # NAME COMMAND...
  local log=$logs/$1.log code=0 started=$SECONDS working idle
  read -r working idle < <(ticks)
  shift
  "$@" 2>&1 </dev/null | tee "$log" || code=$?
  echo "$code $((SECONDS - started)) $(busy_since "$working" "$idle")" >"${log%.log}.end"
}
account() { # NAME
  local name=$1 log=$logs/$1.log code seconds busy p f verdict=ok
  read -r code seconds busy <"$logs/$name.end"
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
  table+=$(printf '  %-15s %4d s  %3d %% busy  %s' "$name" "$seconds" "$busy" "$verdict")$'\n'
}
step() { # NAME COMMAND...
  printf '\n== %s\n' "$1"
  run "$@"
  account "$1"
}
# Steps that wait for much of their time: chains of them, "STEP, STEP, ...", of which MOST run at once, the first ones first. Their output comes
# when all have ended, one behind the other's.
at_once() { # MOST CHAIN...
  local most=$1 chain target words targets
  shift
  printf '\n== %d at once: %s\n' "$most" "$(printf '%s; ' "$@")"
  for chain; do
    while (($(jobs -pr | wc -l) >= most)); do wait -n || true; done
    IFS=, read -ra targets <<<"$chain"
    for target in "${targets[@]}"; do
      read -ra words <<<"$target"
      run "${words[0]}" make --no-print-directory "${words[@]}" >/dev/null
    done &
  done
  wait
  IFS=',;' read -ra targets <<<"$(printf '%s;' "$@")"
  for target in "${targets[@]}"; do
    read -r target _ <<<"$target"
    printf '\n== %s\n' "$target"
    cat "$logs/$target.log"
    account "$target"
  done
}

nothing_left_behind() {
  local after; after=$(tree)
  [[ $after == "$before" ]] || { echo 'the tests changed the working tree:'; diff <(echo "$before") <(echo "$after"); return 1; }
}

if [[ $# != 0 ]]; then
  for target; do
    read -ra words <<<"$target"
    step "${words[0]}" make --no-print-directory "${words[@]}"
  done
else
  # Of what seeds draw, enough that a rule which is broken shows; what is rare is for `make soak`.
  # These compile, ...
  at_once 2 'setup, container-test PROFILE=quick' 'fmt-check, readability, lint, doc, unit, simulate SEEDS=200 PROFILE=test, bench-once, languages'
  # ... these wait for brokers, the longest first, ...
  at_once 3 differential clients-1 clients-2 broker 'generated SEEDS=150'
  # ... and nodes of a cluster that get no processor elect leaders instead.
  at_once 2 cluster-once 'monitoring-test, deploy-check, kubernetes-test, demo'
  # It measures pauses, so it runs alone.
  step faults-once make --no-print-directory faults-once
fi
step nothing-left nothing_left_behind

printf '\n%s%s\n%d passed, %d failed' "$table" "$reasons" "$passed" "$failed"
if [[ $ignored != 0 ]]; then printf ', %d ignored' "$ignored"; fi
echo
[[ $failed == 0 ]]
