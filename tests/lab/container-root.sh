#!/usr/bin/env bash
# Make the root of a Debian system in a folder, with its packages installed as they are on a real machine. Needs root (debian-root.sh, which
# needs none, only unpacks).
#
#   container-root.sh SUITE DIR PACKAGE...      e.g. container-root.sh forky .lab/container/roots/rabbitmq rabbitmq-server
#
# debootstrap is fetched, not installed. The mounts are in a namespace of their own, and go with it.
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"

[[ ${DLX_OWN_MOUNTS:-} ]] || DLX_OWN_MOUNTS=1 exec unshare --mount --pid --fork --kill-child "$0" "$@"
suite=$1 root=$(realpath -m "$2"); shift 2
partial=$root.partial tools=$lab/container/debootstrap
mkdir -p "$lab/container"
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}

exec 9>"$lab/container/lock"
flock 9
if [[ ! -e $tools/usr/sbin/debootstrap ]]; then
  rm -rf "$tools" "$tools.partial"
  mkdir -p "$tools.partial"
  (cd "$tools.partial" && apt-get -qq -o APT::Sandbox::User=root download debootstrap && dpkg-deb -x debootstrap_*.deb .)
  mv "$tools.partial" "$tools"
fi
exec 9>&-

say "installing Debian $suite with: $*"
rm -rf "$partial"
mkdir -p "$partial"
log=$partial.log bare=$lab/container/$suite.tar
quietly() { "$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2; die "failed: $*"; }; }
if [[ -e $bare ]]; then
  tar -C "$partial" -xf "$bare"
else
  # By the script of sid: this machine's debootstrap may be older than the suite.
  quietly env DEBOOTSTRAP_DIR="$tools/usr/share/debootstrap" "$tools/usr/sbin/debootstrap" --variant=minbase \
    "$suite" "$partial" "$mirror" "$tools/usr/share/debootstrap/scripts/sid"
  tar -C "$partial" -cf "$bare.partial" .
  mv "$bare.partial" "$bare"
fi
if [[ $# != 0 ]]; then
  mount -t proc proc "$partial/proc"
  cp -L /etc/resolv.conf "$partial/etc/resolv.conf"
  # Nothing is started by being installed.
  printf '#!/bin/sh\nexit 101\n' >"$partial/usr/sbin/policy-rc.d"
  chmod +x "$partial/usr/sbin/policy-rc.d"
  quietly chroot "$partial" env DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    apt-get -q -o APT::Sandbox::User=root install -y --no-install-recommends "$@"
  rm "$partial/usr/sbin/policy-rc.d"
  umount "$partial/proc"
fi
rm -rf "$partial"/var/{cache/apt/archives/*.deb,lib/apt/lists/*,log/*.log} "$partial"/usr/share/{doc,man,locale}/* "$log"
rm -rf "$root"
mv "$partial" "$root"
