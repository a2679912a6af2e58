#!/usr/bin/env bash
# Which lines of the sessions and of the dead-letter rules no test runs: a table, the lines, and failure below the bar.
# What counts is what `cargo test` runs, with brokers and without; of the simulation it runs 150 worlds. The suites of the client libraries do not
# count, as they use the program as it is.
# cargo-llvm-cov is built into .lab/; LLVM's own two tools are the toolchain's (`rustup component add llvm-tools`), else Debian's of
# the same version, unpacked.
set -euo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$top"

version=0.9.1
if [[ ! -x $lab/cargo/bin/cargo-llvm-cov ]] || ! "$lab/cargo/bin/cargo-llvm-cov" llvm-cov --version | grep -qF "$version"; then
  cargo install --quiet --locked --root "$lab/cargo" --version "$version" cargo-llvm-cov
fi
export PATH="$lab/cargo/bin:$PATH"
if ! compgen -G "$(rustc --print sysroot)/lib/rustlib/*/bin/llvm-cov" >/dev/null; then
  llvm=llvm-$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
  tools=$("$top/tests/lab/debian-root.sh" forky/llvm "$llvm")/usr/lib/$llvm/bin
  export LLVM_COV=$tools/llvm-cov LLVM_PROFDATA=$tools/llvm-profdata
fi

cargo llvm-cov clean --workspace
run() { "$@" || failed=yes; } # the table is of use all the same
failed=''
run cargo llvm-cov --no-report --no-fail-fast --lib --bins --test offline
run env DLX_TEST_SEEDS=150 cargo llvm-cov --no-report --no-fail-fast --test simulation
run tests/lab/with-brokers.sh --middle --plugins rabbitmq_management \
  cargo llvm-cov --no-report --no-fail-fast --test broker --test differential
rm -f default_*.profraw # of programs that were started without an environment
cargo llvm-cov report --lcov --output-path "$lab/coverage.lcov"
"$lab/venv/bin/python" tests/lab/coverage.py "$lab/coverage.lcov" crates/core/src/dead_letter crates/core/src/session
[[ -z $failed ]] || die 'some tests failed, see above'
