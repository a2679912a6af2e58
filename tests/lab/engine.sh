#!/usr/bin/env bash
# Run a Docker engine of our own beside whatever this machine has, until it is killed. Needs root.
#
#   unshare --mount --net --pid --fork --kill-child engine.sh ROOT DATA WORK
#
# ROOT is a Debian with docker.io (container-root.sh), DATA where the engine keeps images and containers, WORK what it may read under the same
# name. The engine sees ROOT as its whole file system, and has mounts, network and processes of its own: all of them go with the first process.
set -euo pipefail
root=$1 data=$2 work=$3

mount --make-rprivate /
mount --bind "$root" "$root"
mkdir -p "$data" "$root/var/lib/docker" "$root$work"
mount --bind "$data" "$root/var/lib/docker"
mount --bind "$work" "$root$work"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
cd "$root"
mkdir -p old
pivot_root . old
cd /
umount -l /old
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
# Not `exec`: the first process is a shell, which takes in the children of those who left them.
dockerd --data-root /var/lib/docker --exec-root /run/docker --host unix:///run/docker.sock --pidfile /run/docker.pid \
  --cgroup-parent "$CGROUP" --log-level warn &
trap 'kill $!' TERM
wait $! || true # the signal
wait $! || true
