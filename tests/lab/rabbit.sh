#!/usr/bin/env bash
# Start, control and stop one private RabbitMQ node: loopback only, ports of its own, its own epmd, data and log.
#
#   rabbit.sh start --dir DIR [--root ROOT] [--plugins A,B] [--conf 'KEY = VALUE']... [--port PORT] [--epmd PORT] [--cookie TEXT]
#                                   ROOT is a folder made by debian-root.sh; without it the installed rabbitmq-server is used. With --port, --epmd
#                                   and --cookie nodes can know one another (cluster.sh); without them each is alone
#   rabbit.sh ctl   --dir DIR ARG...                 rabbitmqctl for that node; DIR/ctl ARG... does the same
#   rabbit.sh stop  --dir DIR [--keep] [--now]       removes DIR except with --keep; --now is kill -9
#
# With TLS it takes clients on TLS_PORT; DIR/tls has the certificates (see certificates.sh; those that are there already stay), and it offers EXTERNAL
# to those who show one.
# `start` writes DIR/node.env (AMQP_PORT, TLS_PORT, MANAGEMENT_PORT, NODE_PID, VERSION, ...) and returns when the node takes clients. On a
# DIR that was kept it starts the same node again: same ports, data and configuration; with --root, too, as that version (an upgrade). Never a
# system service, never root.
# DLX_TEST_SCHEDULERS: how many of them the node has (see below); one, unless somebody measures it.
# DLX_TEST_ERL_ARGS: more words for `erl`.
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"

command=${1:?start, ctl or stop}; shift
dir='' root='' plugins='' keep='' now='' conf=() port='' epmd='' cookie=''
while [[ $# -gt 0 ]]; do
  case $1 in
    --dir) dir=$2; shift 2 ;;
    --root) root=$(cd "$2" && pwd -P); shift 2 ;;
    --plugins) plugins=$2; shift 2 ;;
    --conf) conf+=("$2"); shift 2 ;;
    --port) port=$2; shift 2 ;;
    --epmd) epmd=$2; shift 2 ;;
    --cookie) cookie=$2; shift 2 ;;
    --keep) keep=1; shift ;;
    --now) now=1; shift ;;
    *) break ;;
  esac
done
[[ -n $dir ]] || die 'where? --dir DIR'
mkdir -p "$dir"
dir=$(cd "$dir" && pwd -P)
restart=''
if [[ -e $dir/node.env ]]; then
  restart=1
  # shellcheck source=/dev/null
  . "$dir/node.env"
fi

# Two schedulers that meet at a lock of the Erlang machine spin there and yield their processor, some thousand times in a row. On Linux 6.18
# each yield costs a whole slice of time: where other programs want the processors as well, the node then stands still for half a minute, and
# its clients find no explanation. One scheduler never meets another: under the same load it answers in a tenth of a second.
schedulers=${DLX_TEST_SCHEDULERS:-1}

# Become a program with this node's environment and with nothing of the caller's.
in_env() {
  exec env -i HOME="$dir/home" LANG=C.UTF-8 OPENSSL_CONF=/dev/null \
    PATH="$ROOT/usr/lib/erlang/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT="$EPMD_PORT" \
    RABBITMQ_NODENAME="$NODENAME" RABBITMQ_DIST_PORT="$DIST_PORT" RABBITMQ_BASE="$dir" \
    RABBITMQ_MNESIA_BASE="$dir/data" RABBITMQ_LOG_BASE="$dir/log" RABBITMQ_PID_FILE="$dir/pid" \
    RABBITMQ_CONFIG_FILE="$dir/rabbitmq.conf" RABBITMQ_CONF_ENV_FILE=/dev/null RABBITMQ_ENABLED_PLUGINS_FILE="$dir/enabled_plugins" \
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+S $schedulers:$schedulers -kernel inet_dist_use_interface {127,0,0,1} ${DLX_TEST_ERL_ARGS:-}" \
    RABBITMQ_CTL_ERL_ARGS='+S 1:1 -kernel inet_dist_use_interface {127,0,0,1}' "$@"
}

# All that runs for this node: the server, its helpers, the epmd that it started, a rabbitmqctl. Numbers kept in a file would
# miss some and might have gone to somebody else's process by now.
processes() { grep -lzxsF "RABBITMQ_BASE=$dir" /proc/[0-9]*/environ | cut -d / -f 3 || true; }
ended() { ! processes | grep -qx "$1"; }
gone() { [[ -z $(processes) ]]; }
kill_all() {
  processes | xargs -r kill -KILL 2>/dev/null || true
  gone
}

newest_home() { compgen -G "${root%/}/usr/lib/rabbitmq/lib/rabbitmq_server-*" | sort -V | tail -n 1; }

from() { [[ $(printf '%s\n' "$1" "$VERSION" | sort -V | head -n 1) == "$1" ]]; } # VERSION: is it that one, or newer?

choose() {
  ROOT=${root%/}
  local home
  home=$(newest_home) || die "no rabbitmq-server under ${root:-/}"
  VERSION=${home##*rabbitmq_server-} SBIN=$home/sbin
}

configure() {
  local free
  free=$(free_ports 5)
  read -r AMQP_PORT TLS_PORT MANAGEMENT_PORT DIST_PORT EPMD_PORT <<<"$free"
  AMQP_PORT=${port:-$AMQP_PORT} EPMD_PORT=${epmd:-$EPMD_PORT}
  NODENAME=n$AMQP_PORT@localhost
  mkdir -p "$dir"/{home,data,log}
  if [[ -n $cookie ]]; then (umask 377 && printf %s "$cookie" >"$dir/home/.erlang.cookie"); fi
  [[ -e $dir/tls ]] || "$top/tests/lab/certificates.sh" "$dir/tls"
  {
    printf '%s\n' "listeners.tcp.1 = 127.0.0.1:$AMQP_PORT" 'loopback_users = none' 'log.console = false'
    printf '%s\n' "listeners.ssl.1 = 127.0.0.1:$TLS_PORT" "ssl_options.cacertfile = $dir/tls/ca.pem" \
      "ssl_options.certfile = $dir/tls/server.pem" "ssl_options.keyfile = $dir/tls/server.key" \
      'ssl_options.verify = verify_peer' 'ssl_options.fail_if_no_peer_cert = false' 'ssl_cert_login_from = common_name' \
      'auth_mechanisms.1 = PLAIN' 'auth_mechanisms.2 = AMQPLAIN' 'auth_mechanisms.3 = EXTERNAL' 'auth_mechanisms.4 = ANONYMOUS'
    if [[ $plugins == *management* ]]; then
      printf '%s\n' 'management.tcp.ip = 127.0.0.1' "management.tcp.port = $MANAGEMENT_PORT"
    fi
    # So it is in the releases of 4.3; Debian's build permits them.
    if from 4.3; then echo 'deprecated_features.permit.transient_nonexcl_queues = false'; fi
    if [[ ${#conf[@]} -gt 0 ]]; then printf '%s\n' "${conf[@]}"; fi
  } >"$dir/rabbitmq.conf"
  echo "[rabbitmq_auth_mechanism_ssl${plugins:+,$plugins}]." >"$dir/enabled_plugins"
  printf '#!/bin/sh\nexec %q ctl --dir %q "$@"\n' "$top/tests/lab/rabbit.sh" "$dir" >"$dir/ctl"
  chmod +x "$dir/ctl"
}

remember() {
  local name
  for name in AMQP_PORT TLS_PORT MANAGEMENT_PORT DIST_PORT EPMD_PORT NODENAME NODE_PID VERSION ROOT SBIN; do
    printf '%s=%q\n' "$name" "${!name:-}"
  done >"$dir/node.env"
}

up() { [[ -s $dir/pid ]] && speaks_amqp 127.0.0.1 "$AMQP_PORT"; }
server_ended() { ! kill -0 "$server" 2>/dev/null; }
up_or_ended() { up || server_ended; }
failed() {
  tail -n 30 "$dir/out" >&2
  die "RabbitMQ $VERSION did not start: $1; its log is in $dir/log"
}

case $command in
  start)
    gone || die "the node of $dir runs already"
    if [[ -z $restart || -n $root ]]; then choose; fi
    if [[ -z $restart ]]; then configure; fi
    more_files
    rm -f "$dir/pid"
    # setsid: a Ctrl-C is for the script that owns the node, which stops it in its own order.
    (in_env setsid "$SBIN/rabbitmq-server") </dev/null >"$dir/out" 2>&1 &
    server=$!
    wait_until 120 up_or_ended || failed "no answer on port $AMQP_PORT after 120 s"
    ! server_ended || failed 'it ended'
    # shellcheck disable=SC2034 # read by `remember`, for those who measure the node
    NODE_PID=$(<"$dir/pid")
    remember
    say "RabbitMQ $VERSION takes clients on 127.0.0.1:$AMQP_PORT"
    ;;
  ctl)
    [[ -n $restart ]] || die "no node in $dir"
    in_env "$SBIN/rabbitmqctl" "$@"
    ;;
  stop)
    # Data that is thrown away needs no orderly end.
    if [[ -n $keep && -z $now && -s $dir/pid ]]; then
      server=$(<"$dir/pid") # the node removes the file before it ends
      kill -TERM "$server" 2>/dev/null || true
      wait_until 60 ended "$server" || say 'the node does not end by itself: killed'
    fi
    wait_until 30 kill_all || die "cannot kill $(processes | tr '\n' ' ')"
    [[ -n $keep ]] || rm -rf "$dir"
    ;;
  *) die "unknown command $command" ;;
esac
