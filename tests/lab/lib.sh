# shellcheck shell=bash
# Sourced by the scripts of the lab and by deploy/run.sh: where things are, and the few questions that several of them ask.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
# Everything that is downloaded, unpacked or started lives in here; `make clean` removes it. Worktrees can share one, also by a link: what is in
# it knows its own absolute path.
# shellcheck disable=SC2034 # used by those who source this
lab=$(readlink -m "${DLX_TEST_LAB:-$top/.lab}")

say() { echo "${0##*/}: $*" >&2; }
die() { say "$@"; exit 1; }

# speaks_amqp HOST PORT: does a broker (or the proxy with a broker behind it) answer a protocol header with a method frame?
# An open port would not do: Docker's forwarder and the proxy accept connections before the broker takes them.
speaks_amqp() {
  local byte
  (exec 3<>"/dev/tcp/$1/$2" && printf 'AMQP\0\0\11\1' >&3 && IFS= read -r -t 5 -n 1 byte <&3 && [[ $byte == $'\1' ]]) 2>/dev/null
}

# taken PORT: does something accept connections there?
taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# claim PORT: is it the caller's from now on? Seconds go by until the owner of a port listens there, and another script asks meanwhile. A claim lasts
# for an hour, so that a node that is down for a moment finds its ports free. All checkouts of a machine share the claims.
claims=${TMPDIR:-/tmp}/dlx-test-ports.$UID
claim() { (set -o noclobber && : >"$claims/$1") 2>/dev/null; }

# free_ports COUNT: as many different loopback ports that nobody else is given, below Linux' ephemeral range, so that no outgoing connection takes
# one before its owner listens.
free_ports() {
  local port ports=()
  mkdir -p "$claims"
  find "$claims" -ignore_readdir_race -type f -mmin +60 -delete # another script may delete the same ones
  for _ in {1..100}; do
    port=$((20000 + RANDOM % 12000))
    taken "$port" || ! claim "$port" || ports+=("$port")
    [[ ${#ports[@]} -lt $1 ]] || { echo "${ports[*]}"; return; }
  done
  die 'no free ports between 20000 and 32000'
}

# wait_until SECONDS COMMAND...: until COMMAND succeeds; fails when the time is over.
wait_until() {
  local deadline=$((SECONDS + $1)); shift
  until "$@"; do
    [[ $SECONDS -lt $deadline ]] || return 1
    sleep 0.1
  done
}

# versions_in "VERSION=...,VERSION=...": these versions, a line each. A semicolon separates them, too.
versions_in() { tr ',;' '\n' <<<"$1" | sed 's/=.*//'; }

# side_by_side FUNCTION VERSION...: runs `FUNCTION VERSION` for all of them at once, as they share nothing and mostly wait. Shows what each said when
# all have ended; fails if one does.
side_by_side() {
  local each=$1 said version run failed=0
  local -A runs
  shift
  said=$(mktemp -d "$lab/said.XXXX")
  for version; do
    "$each" "$version" >"$said/$version" 2>&1 &
    runs[$!]=$version
  done
  for run in "${!runs[@]}"; do
    wait "$run" || failed=$?
    printf '\n-- %s\n' "${runs[$run]}"
    cat "$said/${runs[$run]}"
  done
  rm -rf "$said"
  return "$failed"
}

# as_root COMMAND...: for the rare thing that needs it; asks for a password only if somebody is there to type one.
as_root() {
  if [[ $(id -u) == 0 ]]; then "$@"; return; fi
  command -v sudo >/dev/null || die "this needs root, and there is no sudo: $*"
  if [[ -t 0 ]]; then sudo "$@"; else sudo -n "$@"; fi
}

# Many connections at once are part of the tests, and 1,024 descriptors are a common default. Not simply the hard limit:
# Erlang makes a table of that size, and containers set it to a milliard.
more_files() {
  local hard; hard=$(ulimit -Hn)
  [[ $hard != unlimited && $hard -lt 65536 ]] || hard=65536
  ulimit -Sn "$hard"
}

# The two ends of the supported range, and the first of 4.x. RabbitMQ 3.10.8 is bookworm's, 4.0 is trixie's, the newest is forky's,
# whatever that is: a root that is there is kept, and `make clean` makes room for the next. Nothing else knows that version. pip and
# haproxy come along for machines that lack them.
oldest_root() { # nothing printed: the installed one will do
  [[ $(installed_rabbit) == 3.10.* ]] || "$top/tests/lab/debian-root.sh" bookworm rabbitmq-server
}
middle_root() { "$top/tests/lab/debian-root.sh" trixie rabbitmq-server; }
newest_root() { "$top/tests/lab/debian-root.sh" forky rabbitmq-server haproxy python3-pip-whl; }
# Go, Java and their client libraries, and PHP with Symfony Messenger, always these: one way on every machine. Programs of Go and Java run on any
# glibc since 2.34.
languages_root() {
  "$top/tests/lab/debian-root.sh" bookworm/languages \
    golang-1.19-go golang-github-rabbitmq-amqp091-go-dev openjdk-17-jre-headless librabbitmq-client-java \
    php-cli php-amqp php-symfony-amqp-messenger php-symfony-event-dispatcher
}
# Prometheus and promtool, always these. They are Go, and run on any glibc since 2.34.
tools_root() { "$top/tests/lab/debian-root.sh" trixie/tools prometheus; }
# The browser of the tests of the web page: `browser/chromium` in there starts it.
chromium_root() { "$top/tests/lab/debian-root.sh" bookworm/chromium chromium-headless-shell fonts-dejavu-core; }

# The version of the installed rabbitmq-server; nothing if there is none.
installed_rabbit() { compgen -G '/usr/lib/rabbitmq/lib/rabbitmq_server-*' | sed 's/.*rabbitmq_server-//' | sort -V | tail -n 1; }
