#!/usr/bin/env bash
# Run a command once for each broker that DLX_TEST_BROKERS names, all at once: each finds only its own broker there.
#
#   each-broker.sh COMMAND ARG...            e.g. with-brokers.sh tests/lab/each-broker.sh cargo test --test broker
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"

IFS=, read -ra brokers <<<"$DLX_TEST_BROKERS"
declare -A url
for broker in "${brokers[@]}"; do url[${broker%%=*}]=${broker#*=}; done
command=("$@")
with_one() { # VERSION
  export DLX_TEST_BROKERS=$1=${url[$1]}
  exec "${command[@]}"
}
side_by_side with_one "${!url[@]}"
