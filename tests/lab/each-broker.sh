#!/usr/bin/env bash
# Run a command once for each broker that DLX_TEST_BROKERS names, all at once: each finds only its own broker there.
#
#   each-broker.sh COMMAND ARG...            e.g. with-brokers.sh tests/lab/each-broker.sh cargo test --test broker
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"

mapfile -t versions < <(versions_in "$DLX_TEST_BROKERS")
command=("$@")
with_one() { # VERSION
  DLX_TEST_BROKERS=$(tr ',' '\n' <<<"$DLX_TEST_BROKERS" | grep -F "$1=")
  exec "${command[@]}"
}
side_by_side with_one "${versions[@]}"
