#!/usr/bin/env bash
# Three private RabbitMQ nodes as one cluster, and what can happen to them.
#
#   cluster.sh start --dir DIR [what rabbit.sh start takes]...    the nodes are DIR/1, DIR/2 and DIR/3, each as rabbit.sh makes one
#   cluster.sh end     --dir DIR N     an orderly stop of node N; its data stays
#   cluster.sh kill    --dir DIR N     kill -9
#   cluster.sh pause   --dir DIR N     SIGSTOP: its sockets stay open, and nothing is said any more
#   cluster.sh go-on   --dir DIR N     SIGCONT
#   cluster.sh begin   --dir DIR N     starts node N again
#   cluster.sh part    --dir DIR N     a partition: node N on one side, the others on the other
#   cluster.sh heal    --dir DIR       ends all partitions, and waits until all three nodes, which run, know each other. A node of 3.10 that stood still
#                                      until the others gave it up stays apart afterwards: it is restarted, as an operator has to
#   cluster.sh stop    --dir DIR       ends all, and removes DIR
#
# `start` takes about 20 s; DIR/cluster.env then says VERSION and NODES ("host:port,host:port,host:port"), and TLS_NODES the same with TLS: one CA, that
# of DIR/tls, signs the certificates of all. The nodes find each other by an epmd of their own. A partition is made by cookies: each side refuses the
# other's, and what is connected is cut. So it needs no rights, and is noticed at once; one that is noticed late is `pause`. As in most clusters a side
# without a majority pauses itself (3.x; 4.3 has no choice).
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"

command=${1:?start, end, kill, pause, go-on, begin, part, heal or stop}; shift
[[ ${1:-} == --dir ]] || die 'where? --dir DIR'
mkdir -p "$2"
dir=$(cd "$2" && pwd -P); shift 2
rabbit=$top/tests/lab/rabbit.sh
cookie=cluster
# What the broker itself moves at least once, and its worker has no confirm for as a node went away, the worker tries again after this time; by
# default that is three minutes.
export DLX_TEST_ERL_ARGS='-rabbit dead_letter_worker_publisher_confirm_timeout 10000'
# A certificate that is put in the place of another one counts at once.
DLX_TEST_ERL_ARGS+=' -ssl bypass_pem_cache true'

of_node() { ( . "$dir/$1/node.env" && echo "${!2}" ); } # N NAME
server() { of_node "$1" NODE_PID; }

# eval_on N ERLANG
eval_on() { "$dir/$1/ctl" -q eval "$2" >/dev/null; }

# How many nodes run, as node N knows, and those from which it knows itself parted.
state() { # N
  "$dir/$1/ctl" -q eval 'Running = case erlang:function_exported(rabbit_nodes, list_running, 0) of true -> list_running; false -> all_running end,
    {length(rabbit_nodes:Running()), try rabbit_node_monitor:partitions() catch _:_ -> [] end}.' 2>/dev/null
}
formed() {
  local n
  for n in 1 2 3; do [[ $(state "$n") == '{3,[]}' ]] || return 1; done
}
restart_parted() {
  local n
  for n in 1 2 3; do
    [[ $(state "$n") != *,[]} ]] || continue
    say "node $n stays apart, and is restarted"
    "$rabbit" stop --keep --dir "$dir/$n"
    "$rabbit" start --dir "$dir/$n"
  done
}

# meet apart|again N: how N and the others meet from now on. Two that expect the same of each other would meet.
meet() {
  local one other name words asked=()
  for one in 1 2 3; do
    words=''
    for other in 1 2 3; do
      [[ $one != "$other" && ($one == "$2" || $other == "$2") ]] || continue
      name=$(of_node "$other" NODENAME)
      case $1 in
        apart) words+="erlang:set_cookie('$name', apart$one), erlang:disconnect_node('$name'), " ;;
        again) words+="erlang:set_cookie('$name', $cookie), " ;;
      esac
    done
    eval_on "$one" "$words ok." &
    asked+=($!)
  done
  for one in "${asked[@]}"; do wait "$one" || say 'a node does not hear'; done
}

case $command in
  start)
    read -r -a ports <<<"$(free_ports 4)"
    conf=(--conf 'cluster_formation.peer_discovery_backend = classic_config' --conf 'cluster_partition_handling = pause_minority')
    # Until a node that says nothing any more counts as gone, the others of 3.10 wait for it: declares, and queues that it leads. By default that
    # is up to 75 s; here 10.
    conf+=(--conf 'net_ticktime = 8')
    for n in 1 2 3; do conf+=(--conf "cluster_formation.classic_config.nodes.$n = n${ports[n]}@localhost"); done
    root=''
    [[ ${1:-} != --root ]] || root=${2%/}
    # Of no node: it has to outlive each of them.
    mkdir -p "$dir/epmd"
    env -i PATH="$root/usr/lib/erlang/bin:$PATH" RABBITMQ_BASE="$dir/epmd" ERL_EPMD_ADDRESS=127.0.0.1 epmd -port "${ports[0]}" -daemon
    "$top/tests/lab/certificates.sh" "$dir/tls"
    starting=()
    for n in 1 2 3; do
      mkdir -p "$dir/$n"
      cp -RT "$dir/tls" "$dir/$n/tls"
      "$rabbit" start --dir "$dir/$n" "$@" "${conf[@]}" --port "${ports[n]}" --epmd "${ports[0]}" --cookie "$cookie" &
      starting+=($!)
    done
    for one in "${starting[@]}"; do wait "$one" || die 'a node did not start'; done
    wait_until 60 formed || die 'the nodes do not form a cluster'
    nodes() { for n in 1 2 3; do echo "127.0.0.1:$(of_node "$n" "$1")"; done | paste -sd ,; } # NAME of the port
    printf "%s='%s'\n" VERSION "$(of_node 1 VERSION)" NODES "$(nodes AMQP_PORT)" TLS_NODES "$(nodes TLS_PORT)" >"$dir/cluster.env"
    ;;
  end) "$rabbit" stop --keep --dir "$dir/$1" ;;
  kill) "$rabbit" stop --keep --now --dir "$dir/$1" ;;
  pause) kill -STOP "$(server "$1")" ;;
  go-on) kill -CONT "$(server "$1")" ;;
  begin) "$rabbit" start --dir "$dir/$1" ;;
  part)
    meet apart "$1"
    echo "$1" >>"$dir/parted"
    ;;
  heal)
    [[ ! -e $dir/parted ]] || while read -r n; do meet again "$n"; done < <(sort -u "$dir/parted")
    rm -f "$dir/parted"
    wait_until 10 formed || restart_parted
    wait_until 120 formed || die 'the nodes do not find each other again'
    ;;
  stop)
    for node in 1 2 3 epmd; do
      if [[ -d $dir/$node ]]; then "$rabbit" stop --dir "$dir/$node"; fi
    done
    rm -rf "$dir"
    ;;
  *) die "unknown command $command" ;;
esac
