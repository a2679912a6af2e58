#!/usr/bin/env bash
# `make deb`: the Debian package, from a program that is built already.
#
#   build.sh BINARY FOLDER [VERSION] [SAME]        writes FOLDER/dlx-proxy_VERSION_ARCHITECTURE.deb and prints its path
#
# SAME is that version of the program for this machine, if BINARY is for another: it writes the manual pages. The same bytes each time, with
# SOURCE_DATE_EPOCH for the date of all files.
# dpkg-deb, which each Debian has, and not cargo-deb: that would take longer to compile than the proxy, and the scripts of the package would
# be its own, not those that stand here to be read.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P) deploy=$(cd "$(dirname "$0")/.." && pwd -P)
binary=$(realpath "$1") out=$2 same=$(realpath "${4:-$1}")
version=${3:-$("$same" --version | cut -d ' ' -f 2)}
# The processor, from the head of the file.
case $(($(od -An -tu2 -j18 -N2 "$binary"))) in
  62) architecture=amd64 ;;
  183) architecture=arm64 ;;
  *) architecture=$(dpkg --print-architecture) ;;
esac
umask 022

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
install -D -m 755 "$binary" "$root/usr/bin/dlx-proxy"
# A binary of `cargo build --profile dist` has none; any other may.
[[ $architecture != "$(dpkg --print-architecture)" ]] || strip --strip-debug "$root/usr/bin/dlx-proxy"
install -D -m 644 -t "$root/lib/systemd/system" "$deploy"/dlx-proxy.{service,socket}
install -D -m 644 "$here/sysusers.conf" "$root/usr/lib/sysusers.d/dlx-proxy.conf"
install -D -m 640 "$here/dlx-proxy.toml" "$root/etc/dlx-proxy/dlx-proxy.toml"
install -D -m 600 "$here/environment" "$root/etc/dlx-proxy/environment"
install -D -m 644 -t "$root/usr/share/doc/dlx-proxy" "$deploy"/../{LICENSE,README.md,CHANGELOG.md}
mkdir -p "$root/usr/share/man/man1"
"$same" man "$root/usr/share/man/man1"
find "$root/usr/share/man" -type f -exec gzip -9n {} +
completions() { # SHELL FILE
  mkdir -p "$(dirname "$root/usr/share/$2")"
  "$same" completions "$1" >"$root/usr/share/$2"
}
completions bash bash-completion/completions/dlx-proxy
completions zsh zsh/vendor-completions/_dlx-proxy
completions fish fish/vendor_completions.d/dlx-proxy.fish

# Which libraries it needs, and how new: it is for this Debian or a later one. A static program needs none.
libraries=''
if readelf --dynamic "$binary" | grep NEEDED >/dev/null; then
  mkdir -p "$work/debian"
  printf 'Source: dlx-proxy\n\nPackage: dlx-proxy\nArchitecture: any\n' >"$work/debian/control"
  libraries="$(cd "$work" && dpkg-shlibdeps -O "$root/usr/bin/dlx-proxy" 2>/dev/null | sed 's/^shlibs:Depends=//'), "
fi

mkdir -p "$root/DEBIAN"
install -m 755 -t "$root/DEBIAN" "$here"/{postinst,prerm,postrm}
(cd "$root" && find etc -type f -printf '/%p\n' | sort) >"$root/DEBIAN/conffiles"
sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@LIBRARIES@/$libraries/" \
  -e "s/@SIZE@/$(find "$root/usr" -type f -printf '%s\n' | awk '{n += $1} END {printf "%d", n / 1024}')/" "$here/control" >"$root/DEBIAN/control"

mkdir -p "$out"
package=$out/dlx-proxy_${version}_$architecture.deb
# One compressor for all: Ubuntu's default is another.
dpkg-deb -Zxz --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
