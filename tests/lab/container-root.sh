#!/usr/bin/env bash
# Make the root of a Debian system in a folder, with its packages installed as they are on a real machine. Needs root (debian-root.sh, which
# needs none, only unpacks).
#
#   container-root.sh SUITE DIR PACKAGE...      e.g. container-root.sh forky .lab/container/roots/rabbitmq rabbitmq-server; noble is Ubuntu 24.04
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
# By the script of sid: this machine's debootstrap may be older than the suite.
script=sid options=()
if [[ $suite == noble ]]; then
  mirror=${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu} script=gutsy options=(--keyring "$tools/ubuntu/usr/share/keyrings/ubuntu-archive-keyring.gpg")
  if [[ ! -e $tools/ubuntu ]]; then
    # Debian has no package of Ubuntu's keys, so this is the one that was looked at, by its checksum.
    curl -sSf -o "$tools/keys.deb" "$mirror/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"
    sha256sum --quiet --check <<<"36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8  $tools/keys.deb"
    dpkg-deb -x "$tools/keys.deb" "$tools/ubuntu"
  fi
fi
exec 9>&-

say "installing $suite with: $*"
rm -rf "$partial"
mkdir -p "$partial"
log=$partial.log bare=$lab/container/$suite.tar
quietly() { "$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2; die "failed: $*"; }; }
if [[ -e $bare ]]; then
  tar -C "$partial" -xf "$bare"
else
  quietly env DEBOOTSTRAP_DIR="$tools/usr/share/debootstrap" "$tools/usr/sbin/debootstrap" --variant=minbase "${options[@]}" \
    "$suite" "$partial" "$mirror" "$tools/usr/share/debootstrap/scripts/$script"
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
