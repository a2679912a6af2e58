#!/usr/bin/env bash
# The tests on clusters (tests/cluster), each version's beside the others': they share nothing, and mostly wait. Three nodes of the oldest and of
# the newest version are started before, and gone afterwards. What is given goes on to pytest: ARG...
#
# DLX_TEST_CLUSTERS="3.10.8=DIR;4.3.6=DIR" are clusters that cluster.sh started: then none is.
# BROKER=4.3.6 for one version only. ROUNDS=N for so many rounds of what is random (`make soak`).
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$top"
more_files
export PATH="$lab/venv/bin:$PATH" DLX_TEST_ROUNDS=${ROUNDS:-}

cluster=$top/tests/lab/cluster.sh
here=$lab/clusters/$$
# Runs that were killed outright leave their nodes behind: the first one afterwards ends them.
for old in "$lab"/clusters/*/*/; do
  owner=$(basename "$(dirname "$old")")
  if [[ -d $old ]] && ! kill -0 "$owner" 2>/dev/null; then "$cluster" stop --dir "$old"; rmdir --ignore-fail-on-non-empty "$lab/clusters/$owner"; fi
done

stop() {
  trap '' INT TERM HUP
  jobs -pr | xargs -r kill 2>/dev/null || true
  wait || true
  for one in "$here"/*/; do
    if [[ -d $one ]]; then "$cluster" stop --dir "$one"; fi
  done
  rm -rf "$here"
}

# What of it is named here: "version=DIR;version=DIR".
of_version() { tr ';' '\n' <<<"$DLX_TEST_CLUSTERS" | { grep "^$1" || true; }; }

if [[ -z ${DLX_TEST_CLUSTERS:-} ]]; then
  trap stop EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  mkdir -p "$here"
  starting=()
  for name in oldest newest; do
    root=$("${name}_root")
    "$cluster" start --dir "$here/$name" ${root:+--root "$root"} --plugins rabbitmq_management &
    starting+=($!)
  done
  for one in "${starting[@]}"; do wait "$one" || die 'a cluster did not start'; done
  DLX_TEST_CLUSTERS=''
  for name in oldest newest; do
    # shellcheck source=/dev/null
    . "$here/$name/cluster.env"
    DLX_TEST_CLUSTERS+=${DLX_TEST_CLUSTERS:+;}$VERSION=$here/$name
  done
fi
export DLX_TEST_CLUSTERS
DLX_TEST_CLUSTERS=$(of_version "${BROKER:-}" | paste -sd ';')

cluster_tests() { # VERSION
  # What hangs shall not hold all the others up. Random rounds (ROUNDS=N) take as long as they take.
  local limit=()
  [[ -n ${ROUNDS:-} ]] || limit=(timeout --signal=INT 900)
  exec "${limit[@]}" python -m pytest tests/cluster --only "$1" "${arguments[@]}"
}
arguments=("$@")
mapfile -t versions < <(versions_in "$DLX_TEST_CLUSTERS")
side_by_side cluster_tests "${versions[@]}"
