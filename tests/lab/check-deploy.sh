#!/usr/bin/env bash
# Do the files that put the proxy somewhere parse, do they agree with each other, and does the proxy know the settings in them? Does each
# alert rule fire when it has to, and does each metric that a rule or the dashboard names exist?
# No image is pulled and nothing is started. Tools that are not here are named and skipped; the settings are always checked.
#
#   check-deploy.sh [BINARY]          default: target/debug/dlx-proxy
# shellcheck disable=SC2317 # functions are called by `check`
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$top"
binary=${1:-${CARGO_TARGET_DIR:-target}/debug/dlx-proxy}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
check() { # NAME COMMAND...
  local name=$1; shift
  if "$@" >"$work/out" 2>&1; then echo "ok       $name"; else echo "FAILED   $name"; cat "$work/out"; bad=1; fi
}
skip() { echo "skipped  $1 ($2 is not here)"; }

# Structure and references; on the side, it writes each file's settings to $work/NAME.env.
check 'compose, Dockerfile and workflows' "$lab/venv/bin/python" tests/lab/check_deploy.py "$work"

known_settings() { # FILE; called by `check`
  local values
  mapfile -t values <"$1"
  env -i "${values[@]}" "$binary" config check
}
for settings in "$work"/*.env; do
  check "settings in $(basename "$settings" .env)" known_settings "$settings"
done

if [ -x "$lab/bin/promtool" ]; then
  check 'alert rules and dashboard' "$lab/venv/bin/python" -m pytest -q tests/monitoring/test_rules.py
else
  skip 'alert rules and dashboard' promtool
fi

if command -v systemd-analyze >/dev/null; then
  # Neither the program nor its user is here; all else is as in the files.
  sed 's#^ExecStart=[^ ]*#ExecStart=/bin/true#; s#^User=.*#User=nobody#' deploy/dlx-proxy.service >"$work/dlx-proxy.service"
  cp deploy/dlx-proxy.socket "$work/"
  check 'deploy/dlx-proxy.service, .socket' systemd-analyze verify "$work/dlx-proxy.service" "$work/dlx-proxy.socket"
else
  skip 'deploy/dlx-proxy.service' systemd-analyze
fi
if docker compose version >/dev/null 2>&1; then check 'docker compose config' docker compose config -q; else skip 'docker compose config' 'docker compose'; fi
if docker buildx version >/dev/null 2>&1 && docker info >/dev/null 2>&1; then check 'docker build --check' docker build --check .; else skip 'docker build --check' 'a Docker daemon'; fi
scripts=(.ci/run deploy/*.sh deploy/{debian,release}/*.sh tests/lab/*.sh)
for script in "${scripts[@]}"; do check "$script" bash -n "$script"; done
if command -v shellcheck >/dev/null; then check shellcheck shellcheck -x --severity=warning "${scripts[@]}"; else skip shellcheck shellcheck; fi
exit "$bad"
