#!/usr/bin/env bash
# The proxy of another revision beside the one that is here, in the same scenes of the bench, in turns: OLD=REV [ROUNDS=10] [SCENES="throughput nack ttl"].
# What is built of the other revision stays in .lab/pairs, so that the next time is shorter.
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$top"
[[ -n ${OLD:-} ]] || die 'which revision? OLD=REV'
revision=$(git rev-parse --verify "$OLD^{commit}")
pairs=$lab/pairs
mkdir -p "$pairs"
binary=$pairs/dlx-proxy-$revision
if [[ ! -x $binary ]]; then
  tree=$pairs/tree.$$
  trap 'git worktree remove --force "$tree" || true' EXIT
  git worktree add --detach "$tree" "$revision"
  (cd "$tree" && CARGO_TARGET_DIR=$pairs/target cargo build --release --locked --bin dlx-proxy)
  cp "$pairs/target/release/dlx-proxy" "$binary"
fi
# Those that cost the proxy most, unless others are named.
read -ra scenes <<<"${SCENES:-throughput nack ttl}"
DLX_TEST_SCHEDULERS=$(nproc) BENCH_BROKER=${BENCH_BROKER:-newest} BENCH_OLD=$binary BENCH_ROUNDS=${ROUNDS:-10} tests/lab/with-brokers.sh cargo bench --bench load -- "${scenes[@]}"
