#!/usr/bin/env bash
# `make deb`: the Debian package, from a program that is built already.
#
#   build.sh BINARY FOLDER [VERSION]        writes FOLDER/dlx-proxy_VERSION_ARCHITECTURE.deb and prints its path
#
# dpkg-deb, which each Debian has, and not cargo-deb: that would take longer to compile than the proxy, and the scripts of the package would
# be its own, not those that stand here to be read.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P) deploy=$(cd "$(dirname "$0")/.." && pwd -P)
binary=$(realpath "$1") out=$2
version=${3:-$("$binary" --version | cut -d ' ' -f 2)}
architecture=$(dpkg --print-architecture)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
install -D -m 755 "$binary" "$root/usr/bin/dlx-proxy"
# A binary of `cargo build --profile dist` has none; any other may.
strip --strip-debug "$root/usr/bin/dlx-proxy"
install -D -m 644 -t "$root/lib/systemd/system" "$deploy"/dlx-proxy.{service,socket}
install -D -m 644 "$here/sysusers.conf" "$root/usr/lib/sysusers.d/dlx-proxy.conf"
install -D -m 640 "$here/dlx-proxy.toml" "$root/etc/dlx-proxy/dlx-proxy.toml"
install -D -m 600 "$here/environment" "$root/etc/dlx-proxy/environment"
install -D -m 644 -t "$root/usr/share/doc/dlx-proxy" "$deploy"/../{LICENSE,README.md,CHANGELOG.md}
mkdir -p "$root/usr/share/man/man1"
"$binary" man "$root/usr/share/man/man1"
find "$root/usr/share/man" -type f -exec gzip -9n {} +
completions() { # SHELL FILE
  mkdir -p "$(dirname "$root/usr/share/$2")"
  "$binary" completions "$1" >"$root/usr/share/$2"
}
completions bash bash-completion/completions/dlx-proxy
completions zsh zsh/vendor-completions/_dlx-proxy
completions fish fish/vendor_completions.d/dlx-proxy.fish

# Which libraries it needs, and how new: it is for this Debian or a later one.
mkdir -p "$work/debian"
printf 'Source: dlx-proxy\n\nPackage: dlx-proxy\nArchitecture: any\n' >"$work/debian/control"
libraries=$(cd "$work" && dpkg-shlibdeps -O "$root/usr/bin/dlx-proxy" 2>/dev/null | sed 's/^shlibs:Depends=//')

mkdir -p "$root/DEBIAN"
install -m 755 -t "$root/DEBIAN" "$here"/{postinst,prerm,postrm}
(cd "$root" && find etc -type f -printf '/%p\n') >"$root/DEBIAN/conffiles"
sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@LIBRARIES@/$libraries/" \
  -e "s/@SIZE@/$(du -sk --apparent-size "$root/usr" | cut -f 1)/" "$here/control" >"$root/DEBIAN/control"

mkdir -p "$out"
package=$out/dlx-proxy_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
