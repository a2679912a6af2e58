#!/usr/bin/env bash
# The tests with pika, each broker's beside the others': they share nothing, and mostly wait. What goes on from here is pytest's: ARG...
set -euo pipefail
cd "$(dirname "$0")/../.."

said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT
for broker in ${DLX_TEST_BROKERS//,/ }; do
  version=${broker%%=*}
  python -m pytest -p no:cacheprovider tests/clients --only "$version" "$@" >"$said/$version" 2>&1 &
  runs[$!]=$version
done
failed=0
for run in "${!runs[@]}"; do
  wait "$run" || failed=$?
  printf '\n-- %s\n' "${runs[$run]}"
  cat "$said/${runs[$run]}"
done
exit "$failed"
