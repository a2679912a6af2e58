#!/usr/bin/env bash
# `make run` and `make demo`: a broker, the proxy in front of it, and messages that fail. The proxy is killed in between; no message may be lost.
#
#   run.sh run     stays until Ctrl-C, which ends all that was started. Its queues `demo.*` stay in the broker, with dead letters to look at
#   run.sh demo    ends by itself: 0 if all was as it should be
#
# The broker is UPSTREAM if that is set; else a RabbitMQ started privately on a free loopback port: the installed one, else
# Debian's package unpacked into .lab/ (no root needed, no service started), else a Docker container.
# Also: LISTEN and ADMIN (host:port), PROFILE=release, DLX_TEST_PROXY (a binary that is built already).
# shellcheck disable=SC2317 # `stop` is called by a trap
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/../tests/lab/lib.sh"

mode=${1:?run or demo}
listen=${LISTEN:-127.0.0.1:5673} admin=${ADMIN:-127.0.0.1:15673}
log=$lab/$mode.log node=$lab/nodes/$$/run
proxy='' container='' demo=''

# === leave nothing running

stop() {
  trap '' INT TERM HUP
  if [[ -n $demo ]]; then kill "$demo" 2>/dev/null || true; fi
  if [[ -n $proxy ]]; then
    kill -TERM "$proxy" 2>/dev/null || true
    wait_until 15 ended "$proxy" || kill -KILL "$proxy" 2>/dev/null || true
  fi
  if [[ -n $container ]]; then docker rm -f "$container" >/dev/null; fi
  if [[ -e $node ]]; then "$top/tests/lab/rabbit.sh" stop --dir "$node"; rm -rf "${node%/*}"; fi
}
ended() { ! kill -0 "$1" 2>/dev/null; }
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# === a broker: sets `upstream` and `broker` (for people, without a password)

given() {
  local rest=${UPSTREAM#*://} address host port
  address=${rest##*@}; address=${address%%[/?]*}
  host=${address%:*} port=${address##*:}
  [[ $address == *:* ]] || { port=5672; [[ $UPSTREAM != amqps:* ]] || port=5671; }
  upstream=$UPSTREAM broker="$host:$port, yours"
  [[ $UPSTREAM == amqps:* ]] || speaks_amqp "$host" "$port" || die "no AMQP 0-9-1 broker answers on $host:$port"
}
private() { # ROOT, or nothing for the installed rabbitmq-server
  mkdir -p "$node"
  "$top/tests/lab/rabbit.sh" start --dir "$node" ${1:+--root "$1"} --plugins rabbitmq_management || return
  # shellcheck source=/dev/null
  . "$node/node.env"
  upstream=amqp://guest:guest@127.0.0.1:$AMQP_PORT broker="127.0.0.1:$AMQP_PORT, RabbitMQ $VERSION, private"
  export DLX_PROXY_MANAGEMENT_URL=http://guest:guest@127.0.0.1:$MANAGEMENT_PORT
}
supported() { [[ -n $1 && $(printf '%s\n' 3.10 "$1" | sort -V | head -n 1) == 3.10 ]]; }
in_docker() {
  local port
  container=$(docker run --detach --rm --publish 127.0.0.1::5672 rabbitmq:4) || return
  port=$(docker port "$container" 5672/tcp) && port=${port##*:}
  wait_until 120 speaks_amqp 127.0.0.1 "$port" || { docker logs --tail 20 "$container" >&2; return 1; }
  upstream=amqp://guest:guest@127.0.0.1:$port broker="127.0.0.1:$port, rabbitmq:4 in Docker"
}
find_broker() {
  local root
  if [[ -n ${UPSTREAM:-} ]]; then given; return; fi
  if supported "$(installed_rabbit)"; then private ''; return; fi
  if command -v apt-get >/dev/null && root=$(newest_root); then private "$root"; return; fi
  if docker info >/dev/null 2>&1; then in_docker; return; fi
  die 'no RabbitMQ 3.10 or newer is installed, there is no apt-get to fetch one and no Docker daemon to run one.' \
    'Give one: make run UPSTREAM=amqp://user:password@host:5672'
}

# === the proxy

show_log() { say "the end of $log:"; tail -n 20 "$log" >&2; }
ready() { # the admin port says so, once the links to the broker are up
  local line
  (exec 3<>"/dev/tcp/${admin%:*}/${admin##*:}" && printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3 &&
    IFS= read -r -t 5 line <&3 && [[ $line == *' 200 '* ]]) 2>/dev/null
}
ready_or_ended() { ready || ended "$proxy"; }
start_proxy() {
  # By environment: a password on a command line is everybody's to read.
  DLX_PROXY_UPSTREAM=$upstream DLX_PROXY_LISTEN=$listen DLX_PROXY_ADMIN=$admin setsid "$binary" run </dev/null >>"$log" 2>&1 &
  proxy=$!
  wait_until 60 ready_or_ended || { show_log; die "the proxy is not ready after 60 s (http://$admin/readyz)"; }
  ! ended "$proxy" || { show_log; die 'the proxy ended'; }
}

# === the demonstration: kills the proxy while messages wait for a retry

demonstrate() {
  local line killed='' options=()
  [[ $mode != run ]] || options=(--keep)
  exec 4< <(exec "$binary" demo --url "$through" "${options[@]}" </dev/null)
  demo=$!
  while IFS= read -r line <&4; do
    echo "$line"
    [[ $line == *'wait for their second retry' ]] || continue
    kill -KILL "$proxy"
    wait "$proxy" 2>/dev/null || true
    echo '         kill -9 of dlx-proxy, and a new start'
    start_proxy
    killed=yes
  done
  wait "$demo" && [[ -n $killed ]]
}

for address in "$listen" "$admin"; do
  ! taken "${address##*:}" ||
    die "port ${address##*:} is in use, perhaps by another dlx-proxy. Choose others: make $mode LISTEN=127.0.0.1:5674 ADMIN=127.0.0.1:15674"
done
mkdir -p "$lab"
: >"$log"
cd "$top"
# A debug build takes a third of a release build's time, and a demonstration is no benchmark.
binary=${DLX_TEST_PROXY:-}
if [[ -z $binary ]]; then
  # Only a debug build can be told so. Others try parked messages again each minute.
  if [[ ${PROFILE:-dev} == dev ]]; then export DLX_PROXY_PARKED_RETRY=2s; fi
  cargo build --profile "${PROFILE:-dev}" --bin dlx-proxy
  binary=${CARGO_TARGET_DIR:-target}/$([[ ${PROFILE:-dev} == dev ]] && echo debug || echo "$PROFILE")/dlx-proxy
fi
find_broker
start_proxy

# The same user, password and vhost, another address.
through=$(sed -E "s#^(amqps?://([^@/]*@)?)[^/?]*#\1$listen#; s#^amqps:#amqp:#" <<<"$upstream")
if ! demonstrate; then
  show_log
  die "the demonstration failed; the broker was $broker"
fi
[[ $mode == run ]] || exit 0

login='guest, password guest'
if [[ -n ${UPSTREAM:-} ]]; then
  login='a user of your broker'
  through="amqp://$listen, with the user, password and vhost of your broker"
fi
trap 'exit 0' INT
cat <<EOF

  page      http://$admin  (log in as $login)
  clients   $through
  broker    $broker
  log       $log

Try: $binary dead-letters groups demo.dead${ADMIN:+ --url http://$ADMIN}
     $binary dead-letters redrive demo.dead --dry-run${ADMIN:+ --url http://$ADMIN}
Ctrl-C ends all of it.
EOF
code=0
wait "$proxy" || code=$?
proxy=''
show_log
die "the proxy ended by itself (exit code $code)"
