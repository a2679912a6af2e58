#!/usr/bin/env bash
# Run a command with RabbitMQ nodes to test against: the oldest and the newest supported version, private, gone afterwards.
#
#   with-brokers.sh [--plugins A,B] [--middle] COMMAND ARG...            e.g. with-brokers.sh cargo test --test broker
#
# --middle: 4.0.x too, the oldest of its generation.
# The command finds in its environment
#   DLX_TEST_BROKERS="3.10.8=amqp://guest:guest@127.0.0.1:PORT,4.3.6=amqp://..."
#   DLX_TEST_CTL="3.10.8=PROGRAM;4.3.6=PROGRAM"                            rabbitmqctl for that node: PROGRAM ARG...
#   DLX_TEST_DIR="3.10.8=DIR;4.3.6=DIR"                                    its folder: node.env, log; for rabbit.sh stop and start
#   DLX_TEST_TLS="3.10.8=amqps://guest:guest@localhost:PORT,4.3.6=amqps://..."   the same nodes with TLS; DIR/tls has the certificates
#   DLX_TEST_MANAGEMENT="3.10.8=http://guest:guest@127.0.0.1:PORT,4.3.6=http://..."   with --plugins rabbitmq_management
# and the Python environment, haproxy where only we have it, and enough file descriptors. If DLX_TEST_BROKERS is set
# already, those brokers are used and none is started. Its exit code is the command's.
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"

plugins='' middle=''
while [[ $1 == --* ]]; do
  case $1 in
    --plugins) plugins=$2; shift 2 ;;
    --middle) middle=yes; shift ;;
    *) die "unknown option $1" ;;
  esac
done
more_files
export PATH="$lab/venv/bin:$PATH:$lab/bin"
[[ -z ${DLX_TEST_BROKERS:-} ]] || exec "$@"

rabbit=$top/tests/lab/rabbit.sh
nodes=$lab/nodes/$$
# Runs that were killed outright leave their nodes behind: the first one afterwards ends them.
for old in "$lab"/nodes/*/*/; do
  owner=$(basename "$(dirname "$old")")
  if [[ -d $old ]] && ! kill -0 "$owner" 2>/dev/null; then "$rabbit" stop --dir "$old"; rmdir --ignore-fail-on-non-empty "$lab/nodes/$owner"; fi
done

job=''
stop() {
  trap '' INT TERM HUP
  if [[ -n $job ]]; then kill -TERM -- "-$job" 2>/dev/null || true; fi
  for node in "$nodes"/*/; do
    if [[ -d $node ]]; then "$rabbit" stop --dir "$node"; fi
  done
  rm -rf "$nodes"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

start() { # ROOT, or nothing for the installed rabbitmq-server
  local dir
  dir=$(mktemp -d "$nodes/XXXX")
  "$rabbit" start --dir "$dir" ${1:+--root "$1"} --plugins "$plugins"
  # shellcheck source=/dev/null
  . "$dir/node.env"
  DLX_TEST_BROKERS+=${DLX_TEST_BROKERS:+,}$VERSION=amqp://guest:guest@127.0.0.1:$AMQP_PORT
  DLX_TEST_TLS+=${DLX_TEST_TLS:+,}$VERSION=amqps://guest:guest@localhost:$TLS_PORT
  DLX_TEST_CTL+=${DLX_TEST_CTL:+;}$VERSION=$dir/ctl
  DLX_TEST_DIR+=${DLX_TEST_DIR:+;}$VERSION=$dir
  if [[ $plugins == *management* ]]; then
    DLX_TEST_MANAGEMENT+=${DLX_TEST_MANAGEMENT:+,}$VERSION=http://guest:guest@127.0.0.1:$MANAGEMENT_PORT
  fi
}
mkdir -p "$nodes"
export DLX_TEST_BROKERS='' DLX_TEST_TLS='' DLX_TEST_CTL='' DLX_TEST_DIR='' DLX_TEST_MANAGEMENT=''
start "$(oldest_root)"
if [[ -n $middle ]]; then start "$(middle_root)"; fi
start "$(newest_root)"

if [[ -t 0 ]]; then # somebody is there: an interactive command needs the terminal, and Ctrl-C reaches it
  "$@"
else # a job of its own, so that we can be told to end, and end it, while it runs
  set -m
  "$@" &
  job=$!
  set +m
  code=0; wait "$job" || code=$?
  job=''
  exit "$code"
fi
