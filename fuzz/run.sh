#!/usr/bin/env bash
# `make fuzz`: runs the targets one after the other, each for so many seconds, and prints a table. What breaks a promise is kept in
# fuzz/artifacts; the exit code says whether anything was found. The corpus changes only with --keep, which minimises it.
#
#   fuzz/run.sh [--keep] [SECONDS [TARGET...]]
set -euo pipefail
cd "$(dirname "$0")"

# The corpus of a target is one file, an input a line in base64, sorted; the fuzzer wants a folder of inputs, named by their SHA-1.
unpack() { # FILE FOLDER
  local line
  rm -rf "$2" && mkdir -p "$2"
  [[ -e $1 ]] || return 0 # a new target
  while read -r line; do
    base64 -d <<<"$line" >"$2/input"
    mv "$2/input" "$2/$(sha1sum "$2/input" | cut -d' ' -f1)"
  done <"$1"
}
pack() { # FOLDER FILE
  local input
  for input in "$1"/*; do base64 -w0 "$input" && echo; done | LC_ALL=C sort -u >"$2"
}

keep=false
if [[ ${1:-} == --keep ]]; then keep=true; shift; fi
seconds=${1:-60}
targets=("${@:2}")
if [[ ${#targets[@]} == 0 ]]; then mapfile -t targets < <(sed -n 's/^path = "targets\/\(.*\)\.rs"$/\1/p' Cargo.toml); fi

if ! cargo fuzz --version >/dev/null 2>&1; then
  echo 'cargo-fuzz is missing: cargo install cargo-fuzz --locked (a stable toolchain will do). make unit runs the kept inputs without it.' >&2
  exit 69
fi
# No sanitizer: there is no unsafe code to look into, and without one the stable toolchain will do, at twice the speed.
cargo fuzz build --fuzz-dir . --sanitizer none >&2

found=0 table=''
for target in "${targets[@]}"; do
  binary=target/$(rustc -vV | sed -n 's/^host: //p')/release/$target
  [[ -x $binary ]] || { echo "no target $target; there are: $(ls targets)" >&2; exit 64; }
  # What is found on the way is not for the repository, unless it is minimised.
  work=work/$target corpus=work/$target.corpus log=work/$target.log
  mkdir -p "$work" "artifacts/$target" "seeds/$target"
  unpack "corpus/$target.base64" "$corpus"
  before=$(find "artifacts/$target" -type f | wc -l)
  "$binary" "$work" "$corpus" "seeds/$target" -artifact_prefix="artifacts/$target/" -max_total_time="$seconds" \
    -max_len=1200 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 >"$log" 2>&1 || true
  new=$(($(find "artifacts/$target" -type f | wc -l) - before))
  found=$((found + new))
  execs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  cov=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
  table+=$(printf '  %-11s %6d s %12s %7s %9d' "$target" "$seconds" "${execs:--}" "${cov:--}" "$new")$'\n'
  if [[ $new != 0 ]]; then grep -A3 panicked "$log" >&2 || true; fi
  if $keep; then
    rm -rf work/kept && mkdir work/kept
    # By edges, not by how often: a few hundred are enough for that.
    "$binary" -merge=1 -use_counters=0 -max_len=600 work/kept "seeds/$target" "$corpus" "$work" >>"$log" 2>&1
    # The seeds are kept under their own names.
    find "seeds/$target" -type f -exec sha1sum {} + | while read -r sum _; do rm -f "work/kept/$sum"; done
    pack work/kept "corpus/$target.base64"
  fi
done
printf '  %-11s %8s %12s %7s %9s\n%s' target time execs coverage findings "$table"
[[ $found == 0 ]]
