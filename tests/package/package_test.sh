#!/usr/bin/env bash
# package_test.sh BUILD [CXX_FLAGS]: installs attest from its build folder, configures, builds and runs the example
# project outside of the tree, where a right kernel passes and a wrong one fails with a report that says so.
set -euo pipefail
build="$(cd "${1:?usage: package_test.sh BUILD [CXX_FLAGS]}" && pwd)"
here="$(cd "$(dirname "$0")" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

fail() {
  echo "package_test: $*" >&2
  exit 1
}
# expect TEXT: the log of the last run holds it.
expect() { grep -qF -- "$1" "$work/log" || { cat "$work/log"; fail "expected '$1' in what was printed"; }; }

cmake --install "$build" --prefix "$work/prefix" >"$work/log" || { cat "$work/log"; fail "cannot be installed"; }
"$work/prefix/bin/attest" list >/dev/null
cp -r "$here/example" "$work/example"

status=0
cmake -S "$work/example" -B "$work/without" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -Dattest_mpfi_library= \
  >"$work/log" 2>&1 || status=$?
((status == 1)) || { cat "$work/log"; fail "configured without a library that it needs"; }
expect "the library mpfi is not there"

launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
cmake -S "$work/example" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_FLAGS="${2:-}" \
  "${launcher[@]}" >"$work/log" 2>&1 || { cat "$work/log"; fail "the example cannot be configured"; }
cmake --build "$work/build" >"$work/log" 2>&1 || { cat "$work/log"; fail "the example cannot be built"; }

"$work/build/my_kernel_test" >"$work/log" 2>&1 || { cat "$work/log"; fail "a right kernel fails"; }
expect "[  PASSED  ] 2 tests."

status=0
RC_PARAMS="seed=1" "$work/build/my_kernel_test" --gtest_also_run_disabled_tests --gtest_filter='*DISABLED*' \
  >"$work/log" 2>&1 || status=$?
((status == 1)) || { cat "$work/log"; fail "a wrong kernel: expected exit status 1, got $status"; }
expect "2 FAILED TESTS"
expect "FAIL      linear_attention: linear, stream"
expect "replay    attest::check(kernel, {.seed = 7, .only = \""
expect "Falsifiable after"
expect "linear variant=masked T=1 d=1 dv=1 H=1 B=1 recipe=gaussian gates=published seed="
echo "package_test: installed, found, built and run; the wrong kernel is rejected"
