#!/usr/bin/env bash
# `make release`: all that is published, in FOLDER: static programs with their manual, Debian packages, container image, chart, bill of materials,
# checksums. Two builds of one commit give the same bytes (`make release-check`).
#
#   build.sh FOLDER
#
# TARGETS="x86_64-unknown-linux-musl": fewer of them. The first one has to run on this machine: it writes the manual.
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/../../tests/lab/lib.sh"
here=$(cd "$(dirname "$0")" && pwd -P) out=$(realpath -m "$1")
cd "$top"
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
built=$(realpath -m "${CARGO_TARGET_DIR:-target}") work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
mkdir -p "$out"

# === programs

targets=${TARGETS:-x86_64-unknown-linux-musl aarch64-unknown-linux-musl}
# Of each target: its standard library, and a C compiler for `ring`, whose code needs no C library. All else links by Rust's own linker.
for target in $targets; do
  [[ -e $(rustc --print target-libdir --target "$target") ]] || rustup target add "$target"
  case $target in aarch64-*) packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross) ;; *) packages=(gcc libc6-dev) ;; esac
  command -v "${target%%-*}-linux-gnu-gcc" >/dev/null ||
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${packages[@]}" >&2
done
auditable=$lab/cargo/bin/cargo-auditable
[[ -x $auditable ]] || cargo install --quiet --locked --root "$lab/cargo" cargo-auditable@0.7.4

# musl's allocator, and the profile `dist`: beside the profile `release` with glibc what passes costs the same, a rejected message takes 15 % more of
# a processor, and the process a third less memory. Another allocator would be one more piece of C.
# No path of this machine gets into them.
paths=("$top=/dlx-proxy" "$built=/target" "${CARGO_HOME:-$HOME/.cargo}=/cargo" "$(rustc --print sysroot)=/rust")
flags=(-Clinker=rust-lld -Clinker-flavor=ld.lld "${paths[@]/#/--remap-path-prefix=}")
program() { # TARGET
  local name=${1//-/_}
  export "CC_$name=${1%%-*}-linux-gnu-gcc" "CFLAGS_$name=${paths[*]/#/-ffile-prefix-map=}"
  CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; echo "${flags[*]}") \
    "$auditable" auditable build --profile dist --locked --bin dlx-proxy --target "$1"
}

# === archives: in order of names, all of one date and of root

packed() { # FOLDER NAME OUT: of what FOLDER/NAME has
  tar -C "$1" --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -c "$2" | gzip -9n >"$3"
}
archive() { # ARCHITECTURE PROGRAM SAME
  local name=dlx-proxy-$version-linux-$1 shell
  mkdir -p "$work/$name"/{man,completions}
  install -m 755 "$2" "$work/$name/dlx-proxy"
  install -m 644 LICENSE CHANGELOG.md deploy/dlx-proxy.{service,socket} "$work/$name"
  "$3" man "$work/$name/man"
  for shell in bash zsh fish; do "$3" completions "$shell" >"$work/$name/completions/dlx-proxy.$shell"; done
  packed "$work" "$name" "$out/$name.tar.gz"
}
chart() { # Helm writes the time of day into its archive
  PATH=$PATH:$lab/venv/bin helm package deploy/helm/dlx-proxy --destination "$work" >/dev/null
  tar -C "$work" -xf "$work/dlx-proxy-$version.tgz"
  packed "$work" dlx-proxy "$out/dlx-proxy-$version.tgz"
}

# === all of it

images=() same=''
for target in $targets; do
  program "$target"
  binary=$built/$target/dist/dlx-proxy
  same=${same:-$binary}
  case $target in x86_64-*) architecture=amd64 ;; aarch64-*) architecture=arm64 ;; *) die "no name for $target" ;; esac
  archive "$architecture" "$binary" "$same"
  deploy/debian/build.sh "$binary" "$out" "$version" "$same" >/dev/null
  images+=("$architecture=$binary")
done
python3 "$here/image.py" "$version" "$out/dlx-proxy-$version-image.tar" "${images[@]}"
# shellcheck disable=SC2086 # a list
python3 "$here/sbom.py" $targets >"$out/dlx-proxy-$version.cdx.json"
chart
(cd "$out" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
# For the page of the release; what a user downloads is above.
sed -n "/^## $version$/,/^## /{/^## /!p}" CHANGELOG.md >"$out/NOTES.md"
(cd "$out" && ls -l)
