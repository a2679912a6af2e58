#!/usr/bin/env bash
# The tests with pika, each broker's beside the others': they share nothing, and mostly wait. On a broker between the first and the last only those
# that are marked `every_broker` run. What goes on from here is pytest's: ARG...
set -euo pipefail
cd "$(dirname "$0")/../.."

said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT
IFS=, read -ra brokers <<<"$DLX_TEST_BROKERS"
last=$((${#brokers[@]} - 1))
for i in "${!brokers[@]}"; do
  version=${brokers[i]%%=*}
  some=() && ((i == 0 || i == last)) || some=(-m every_broker)
  python -m pytest -p no:cacheprovider tests/clients --only "$version" "${some[@]}" "$@" >"$said/$version" 2>&1 &
  runs[$!]=$version
done
failed=0
for run in "${!runs[@]}"; do
  wait "$run" || failed=$?
  printf '\n-- %s\n' "${runs[$run]}"
  cat "$said/${runs[$run]}"
done
exit "$failed"
