#!/usr/bin/env bash
# The tests with pika, each broker's beside the others'. On a broker between the first and the last only those that are marked `every_broker` run.
# They mostly wait, so there are two parts, which may run at once on brokers of their own: PART=1 or 2 runs every second file.
# What goes on from here is pytest's: ARG...
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$top"

mapfile -t versions < <(versions_in "$DLX_TEST_BROKERS")
arguments=("$@")
files=(tests/clients)
if [[ -n ${PART:-} ]]; then mapfile -t files < <(printf '%s\n' tests/clients/test_*.py | awk -v part="$PART" 'NR % 2 == part % 2'); fi
client_tests() { # VERSION
  local some=()
  [[ $1 == "${versions[0]}" || $1 == "${versions[-1]}" ]] || some=(-m every_broker)
  exec python -m pytest -p no:cacheprovider --durations=12 "${files[@]}" --only "$1" "${some[@]}" "${arguments[@]}"
}
side_by_side client_tests "${versions[@]}"
