#!/usr/bin/env bash
# Bring in what the tests need and is not here yet: both ends of the supported RabbitMQ range and 4.0, haproxy, a Python with its
# client libraries and Helm, Prometheus, a browser, and Node.js, Go, Java and PHP with theirs. All of it goes into .lab/; only a missing Python is installed (the sole step
# that needs root or sudo).
# With brokers of your own in DLX_TEST_BROKERS no broker is fetched. Quick when there is nothing to do.
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"

mkdir -p "$lab"
# Of two at once the second one finds that all is there.
exec 7>"$lab/setup.lock"
flock 7

# === brokers and haproxy

if [[ -z ${DLX_TEST_BROKERS:-} ]]; then
  oldest_root >/dev/null
  middle_root >/dev/null
  newest_root >/dev/null
fi
# `make bench` compares with haproxy; whoever brings brokers of their own brings that too, or installs the package.
if ! command -v haproxy >/dev/null && [[ -z ${DLX_TEST_BROKERS:-} ]]; then
  mkdir -p "$lab/bin"
  ln -sf "$(newest_root)/usr/sbin/haproxy" "$lab/bin/haproxy"
fi

# === Python

if ! command -v python3 >/dev/null; then
  say 'installing python3'
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends python3 python3-venv >&2
fi
requirements=("$top"/tests/{lab,clients,languages}/requirements.txt)
wanted=$(cat "${requirements[@]}")
if [[ ! -e $lab/venv/.content || $(<"$lab/venv/.content") != "$wanted" ]]; then
  say 'making a Python environment for the client tests'
  rm -rf "$lab/venv"
  # Debian splits pip's bootstrap off into python3-venv; its newer suite lends us pip where that package is missing.
  if python3 -c 'import ensurepip' 2>/dev/null; then
    python3 -m venv "$lab/venv"
  else
    python3 -m venv --without-pip "$lab/venv"
    wheel=$(compgen -G "$(newest_root)/usr/share/python-wheels/pip-*.whl")
    "$lab/venv/bin/python" "$wheel/pip" --quiet install "$wheel"
  fi
  "$lab/venv/bin/python" -m pip --quiet --disable-pip-version-check install "${requirements[@]/#/--requirement=}" >&2
  echo "$wanted" >"$lab/venv/.content"
fi

# === Prometheus

mkdir -p "$lab/bin"
for tool in prometheus promtool; do ln -sf "$(tools_root)/usr/bin/$tool" "$lab/bin/$tool"; done

# === a browser

mkdir -p "$lab/bin"
ln -sf "$(chromium_root)/browser/chromium" "$lab/bin/chromium"

# === client libraries of other languages: Node.js came with Python's

mkdir -p "$lab/languages"
ln -sfn "$(languages_root)" "$lab/languages/debian"
packages=("$top"/tests/languages/package{,-lock}.json)
wanted=$(cat "${packages[@]}")
if [[ ! -e $lab/languages/.content || $(<"$lab/languages/.content") != "$wanted" ]]; then
  say 'fetching client libraries for JavaScript'
  cp "${packages[@]}" "$lab/languages/"
  PATH="$lab/venv/bin:$PATH" npm --prefix "$lab/languages" --silent --no-audit --no-fund ci >&2
  echo "$wanted" >"$lab/languages/.content"
fi
