#!/usr/bin/env bash
# Rounds of faults on two nodes of their own, which are killed and started again: never on brokers that somebody has given us.
# From the environment: ROUNDS, FAULT (names with commas), SEED, BROKER (a version), SECONDS (none begins later), FLOODS (per cent), SHORT (as in `make test`).
# The output is in .lab/faults.log, too.
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$top"
unset DLX_TEST_BROKERS
export DLX_FAULTS_ROUNDS=${ROUNDS:-} DLX_FAULTS_FAULT=${FAULT:-} DLX_FAULTS_SEED=${SEED:-} DLX_FAULTS_BROKER=${BROKER:-} DLX_FAULTS_SHORT=${SHORT:-} DLX_FAULTS_FLOODS=${FLOODS:-}
# bash has a variable of that name, and counts in it what it was given.
DLX_FAULTS_SECONDS=${LIMIT:-}
export DLX_FAULTS_SECONDS
# shellcheck disable=SC2016 # for the shell that finds the nodes in its environment
tests/lab/with-brokers.sh sh -c 'DLX_FAULTS_NODES=$DLX_TEST_DIR exec cargo test --test faults' 2>&1 | tee "$lab/faults.log"
