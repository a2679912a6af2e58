#!/bin/sh
# One container by hand, in mount, process and network namespaces of its own: container.sh FOLDER BINARY CGROUP UID FILES... -- ARGUMENTS...
# FOLDER has what volumes and the runtime would put into the container; FILES are paths in it. UID: `map` where only one user is to be had, else `set`.
set -eu
folder=$1 binary=$2 cgroup=$3 how=$4; shift 4
[ -z "$cgroup" ] || echo 0 >"$cgroup/cgroup.procs"

# A root that nothing can be written to: the libraries of this machine, the program, and what the volumes have.
root=$folder/root
mkdir -p "$root"
mount -t tmpfs -o mode=755 none "$root"
for part in /usr /bin /lib /lib64 /sbin; do
  if [ -L "$part" ]; then ln -s "$(readlink "$part")" "$root$part"; elif [ -e "$part" ]; then mkdir "$root$part"; mount --rbind "$part" "$root$part"; fi
done
while [ "$1" != -- ]; do
  mkdir -p "$root/${1%/*}"
  cp "$folder/$1" "$root/$1"
  shift
done
shift
mkdir "$root/proc" "$root/old"
touch "$root/dlx-proxy"
mount --bind "$binary" "$root/dlx-proxy"
mount -t proc proc "$root/proc"
cd "$root"
pivot_root . old
umount -l old
rmdir old
mount -o remount,ro,bind /

# User 10001, no capability, none to be had.
if [ "$how" = set ]; then
  exec setpriv --reuid=10001 --regid=10001 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs /dlx-proxy "$@"
fi
exec unshare --user --map-user=10001 --map-group=10001 setpriv --no-new-privs /dlx-proxy "$@"
