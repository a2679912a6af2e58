#!/usr/bin/env bash
# `make container-test`: the Dockerfile, docker-compose.yml and the Debian package as they stand, in a Docker engine of our own.
#
# No image is pulled: those that the files name are stand-ins, made of Debian's packages once and kept by the engine in .lab/container. Nothing
# in the engine's network leads out of this machine, so the stand-in for rust brings the crates of Cargo.lock along.
# PROFILE=quick for a program that compiles faster than one of `dist`; then the size of the image is not judged. ARG... goes to pytest.
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$top"

here=$lab/container roots=$lab/container/roots group=dlx-container-test-$$
skip() { echo "SKIPPED: no container engine can run here: $1"; exit 0; }
[[ $(id -u) == 0 ]] || skip 'that needs root'
[[ $(uname -m) == x86_64 && -e /etc/debian_version ]] || skip 'its parts are packages of Debian for x86-64'
compgen -G '/sys/fs/cgroup/*' >/dev/null || skip 'no cgroups at /sys/fs/cgroup'
unshare --mount --net --pid --fork true 2>/dev/null || skip 'the kernel gives no namespaces'
mkdir -p "$here" "$roots"
exec 8>"$here/running"
flock 8

# === the engine

root_of() { # NAME SUITE PACKAGE...: made once
  local name=$1; shift
  [[ -e $roots/$name ]] || tests/lab/container-root.sh "$1" "$roots/$name" "${@:2}"
}
root_of engine trixie docker.io docker-cli docker-compose docker-buildx iptables iproute2

engine='' inner=''
ended() { [[ ! -e /proc/$inner ]]; }
stop() {
  trap '' INT TERM HUP
  # The first of its processes: with it go all others, their mounts and interfaces.
  if [[ -n $inner ]]; then
    kill -TERM "$inner" 2>/dev/null || true
    wait_until 30 ended || kill -KILL "$inner"
  fi
  # Not these, which hold only themselves by now.
  find /sys/fs/cgroup -depth -type d -path "*/$group*" -exec rmdir {} + 2>/dev/null || true
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
CGROUP=$group unshare --mount --net --pid --fork --kill-child tests/lab/engine.sh "$roots/engine" "$here/data" "$top" </dev/null >"$here/engine.log" 2>&1 &
engine=$!
first_process() { inner=$(pgrep -P "$engine"); }
wait_until 10 first_process || { cat "$here/engine.log"; die 'the engine did not start'; }
in_engine() { nsenter --target "$inner" --mount --net --pid --root "$@"; }
docker() { in_engine docker "$@"; }
answers() { docker info >/dev/null 2>&1; }
wait_until 30 answers || { tail -n 5 "$here/engine.log"; skip 'the engine does not start, see above'; }

# === the images that the files name

has() { # IMAGE CONTENT
  [[ $(docker image inspect --format '{{index .Config.Labels "content"}}' "$1" 2>/dev/null) == "$2" ]]
}
import() { # IMAGE CONTENT ROOT CHANGE...: of what is in a folder
  local image=$1 root=$3 change changes=(--change "LABEL content=\"$2\""); shift 3
  for change; do changes+=(--change "$change"); done
  tar -C "$root" -c . | docker import "${changes[@]}" - "$image" >/dev/null
  rm -rf "$root"
  say "made a stand-in for $image"
}

if ! has debian:bookworm-slim 1; then
  root_of slim bookworm
  import debian:bookworm-slim 1 "$roots/slim" 'CMD ["bash"]'
fi

if ! has rabbitmq:4-management 1; then
  root_of rabbitmq forky rabbitmq-server
  # What the real image says to the broker: guest may come from anywhere, and the management page is there.
  echo 'loopback_users.guest = false' >"$roots/rabbitmq/etc/rabbitmq/rabbitmq.conf"
  echo '[rabbitmq_management].' >"$roots/rabbitmq/etc/rabbitmq/enabled_plugins"
  # One scheduler, for the reason that rabbit.sh gives.
  import rabbitmq:4-management 1 "$roots/rabbitmq" 'USER rabbitmq' 'VOLUME /var/lib/rabbitmq' 'EXPOSE 5672 15672' \
    'ENV HOME=/var/lib/rabbitmq LANG=C.UTF-8 RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+S 1:1" RABBITMQ_CTL_ERL_ARGS="+S 1:1"' \
    'CMD ["/usr/lib/rabbitmq/bin/rabbitmq-server"]'
fi

if ! has dlx-test/systemd 1; then
  root_of systemd bookworm systemd systemd-sysv dbus
  import dlx-test/systemd 1 "$roots/systemd" 'CMD ["/sbin/init"]' 'STOPSIGNAL SIGRTMIN+3'
fi

sysroot=$(rustc --print sysroot)
compiler="3, $(rustc --version)" # the number goes up with the recipe
if ! has dlx-test/rust "$compiler"; then
  root_of rust bookworm gcc libc6-dev dpkg-dev
  mkdir -p "$roots/rust/usr/local/lib/rustlib"
  cp -a "$sysroot"/bin "$roots/rust/usr/local/"
  cp -a "$sysroot"/lib/*.so* "$roots/rust/usr/local/lib/"
  cp -a "$sysroot"/lib/rustlib/x86_64-unknown-linux-gnu "$roots/rust/usr/local/lib/rustlib/"
  import dlx-test/rust "$compiler" "$roots/rust" 'ENV CARGO_HOME=/usr/local/cargo PATH=/usr/local/bin:/usr/bin:/bin'
fi
lock=$compiler-$(sha256sum <Cargo.lock | cut -c 1-16)
if ! has rust:1-bookworm "$lock"; then
  rm -rf "$here/crates"
  mkdir -p "$here/crates/cargo"
  cargo vendor --quiet --locked "$here/crates/vendor" >/dev/null
  printf '[source.%s]\n%s\n' crates-io 'replace-with = "vendored"' vendored 'directory = "/usr/local/vendor"' >"$here/crates/cargo/config.toml"
  printf '%s\n' 'FROM dlx-test/rust' "LABEL content=\"$lock\"" 'COPY . /usr/local/' >"$here/crates/Dockerfile"
  tar -C "$here/crates" -c . | docker build --quiet --tag rust:1-bookworm - >/dev/null
  rm -rf "$here/crates"
  say 'made a stand-in for rust:1-bookworm'
fi

# Stand-ins of before, and the layers of builds: each holds all that cargo made.
docker image prune --force >/dev/null
docker builder prune --force --keep-storage 4GB >/dev/null

# === the tests

export DLX_TEST_ENGINE=$inner DLX_TEST_CGROUP=$group
# In the engine's network, where the ports are published; they are nobody else's there.
nsenter --target "$inner" --net "$lab/venv/bin/python" -m pytest -p no:cacheprovider tests/container "$@"
