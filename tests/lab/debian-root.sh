#!/usr/bin/env bash
# Unpack packages as another Debian suite has them, with all that they need, into a folder, and print the folder's path.
#
#   debian-root.sh SUITE[/NAME] PACKAGE...     e.g. debian-root.sh forky rabbitmq-server haproxy; NAME: one more of that suite
#
# No root, no chroot, no mounts, and nothing of the system changes: apt resolves and downloads against an empty system of
# its own, the packages are only unpacked, and each program of RabbitMQ, haproxy, LLVM and PHP gets a wrapper which runs it with the loader and
# the libraries of its own suite. So a Debian or an Ubuntu of any age can run both ends of the supported range.
# The result is kept and reused: it is built under another name and renamed when complete, so an interrupted run leaves
# nothing that looks finished. About 20 s and 160 MB. DEBIAN_MIRROR overrides the mirror that apt uses on this machine.
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"

suite=${1%%/*} name=${1/\//-}; shift
root=$lab/debian/$name work=$lab/debian/$name.partial
mkdir -p "$lab/debian"

# The wrappers hold absolute paths: a folder that was moved is as good as none.
content="$root: $*"
complete() { [[ -e $root/.content && $(<"$root/.content") == "$content" ]]; }

exec 9>"$lab/debian/$name.lock"
flock 9
if complete; then echo "$root"; exit; fi
command -v apt-get >/dev/null || die 'this needs apt-get: Debian or Ubuntu'
rm -rf "$work" "$root"
mkdir -p "$work"/apt/{lists/partial,cache/archives/partial} "$work/root"

# === where from, and signed by whom

apt() {
  apt-get -qq -o Dir::State::lists="$work/apt/lists" -o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/apt/cache" \
    -o APT::Sandbox::User= -o Debug::NoLocking=1 -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Update::Error-Mode=any "$@" \
    >"$work/apt/out" 2>&1 || { cat "$work/apt/out" >&2; die "apt-get failed: ${*: -2}"; }
}
foreign() {
  # A mirror that stands still ages past its date, hence Check-Valid-Until.
  apt -o Dir::Etc::sourcelist="$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferences=/dev/null \
    -o Dir::Etc::preferencesparts=/dev/null -o Acquire::Check-Valid-Until=false -o APT::Install-Recommends=false "$@"
}
keyring() { compgen -G "$1/usr/share/keyrings/debian-archive-keyring.[gp][gp][gp]" | head -n 1; }

: >"$work/apt/status"
# shellcheck disable=SC2016 # $(SITE) is apt's
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(SITE)' | grep -m 1 -E '^https?://[^ ]*/debian/?$' || true)}
mirror=${mirror:-http://deb.debian.org/debian}
keys=$(keyring '' || true)
if [[ -z $keys ]]; then # Ubuntu has Debian's keys in a package of its own
  say "fetching Debian's keys from this machine's own mirror"
  apt update
  (cd "$work/apt" && apt download debian-archive-keyring)
  dpkg-deb -x "$work"/apt/debian-archive-keyring_*.deb "$work/apt/keys"
  keys=$(keyring "$work/apt/keys")
fi
echo "deb [arch=$(dpkg --print-architecture) target=Packages signed-by=$keys] $mirror $suite main" >"$work/apt/sources.list"

# === download and unpack

say "unpacking $* of Debian $suite from $mirror"
foreign update
foreign install -y --download-only "$@"
for package in "$work"/apt/cache/archives/*.deb; do dpkg-deb -x "$package" "$work/root"; done

# === let its programs run from where they are

libc=$(find "$work/root" -name libc.so.6 -print -quit)
loader=$(find "${libc%/*}" -name 'ld-linux*.so*' -print -quit)
triplet=$(basename "${libc%/*}")
is_elf() { [[ $(head -c 4 "$1" | tail -c 3) == ELF ]]; }
wrap() { # --argv0: escript and erlexec look beside their own name for the rest
  local program=$root${1#"$work/root"}
  mv "$1" "$1.elf"
  cat >"$1" <<EOF
#!/bin/sh
exec '$root${loader#"$work/root"}' --argv0 "\$0" --library-path '$root/lib/$triplet:$root/usr/lib/$triplet' '$program.elf' "\$@"
EOF
  chmod +x "$1"
}
while IFS= read -r file; do
  if is_elf "$file"; then wrap "$file"; fi
done < <(find "$work"/root/usr/{lib/erlang,lib/llvm-*/bin,sbin,bin/php*} -type f -perm -u+x ! -name '*.so' 2>/dev/null)
if [[ -e $work/root/usr/lib/erlang ]]; then
  sed -i "s#=/usr/lib/erlang#=$root/usr/lib/erlang#" "$work"/root/usr/lib/erlang/bin/erl "$work"/root/usr/lib/erlang/erts-*/bin/erl
fi
# What a package links to below /etc is below the folder here.
while IFS= read -r link; do
  ln -sfn "$root$(readlink "$link")" "$link"
done < <(find "$work/root" -type l -lname '/*')

# Chromium starts itself again by the name of its own file, which must not be the loader: so it runs with this system's C library, which has to
# be as new as its own, and with all other libraries of its suite.
if [[ -e $work/root/usr/lib/chromium ]]; then
  mkdir -p "$work/root/browser/libraries"
  dpkg-deb --contents "$work"/apt/cache/archives/libc6_*.deb | sed -nE 's#.*/([^/ ]*\.so[^/ ]*)( .*)?$#\1#p' >"$work/libc"
  while IFS= read -r library; do
    ln -sf "$root${library#"$work/root"}" "$work/root/browser/libraries/"
  done < <(find "$work"/root/{,usr/}lib/"$triplet" -maxdepth 2 -name '*.so*' ! -type d | grep -vwFf "$work/libc")
  cat >"$work/root/browser/fonts.conf" <<EOF
<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>$root/usr/share/fonts</dir><include>$root/etc/fonts/conf.d</include><cachedir>$root/browser/fonts</cachedir></fontconfig>
EOF
  cat >"$work/root/browser/chromium" <<EOF
#!/bin/sh
export FONTCONFIG_FILE='$root/browser/fonts.conf' LD_LIBRARY_PATH='$root/browser/libraries'
exec '$root/usr/lib/chromium/chromium-headless-shell' "\$@"
EOF
  chmod +x "$work/root/browser/chromium"
fi

echo "$content" >"$work/root/.content"
mv "$work/root" "$root"
rm -rf "$work"
echo "$root"
