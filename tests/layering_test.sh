#!/usr/bin/env bash
# Negative control of layering.sh: trees with one wrong include are refused, the same tree with a right one is not.
set -euo pipefail
script="$(cd "$(dirname "$0")" && pwd)/layering.sh"
tree="$(mktemp -d)"
trap 'rm -rf "$tree"' EXIT
failures=0

# expect STATUS FILE INCLUDE: the verdict about a tree whose only source FILE holds only INCLUDE.
expect() {
  local status=0
  rm -rf "${tree:?}"/*
  mkdir -p "$tree/$(dirname "$2")"
  echo "#include $3" >"$tree/$2"
  bash "$script" "$tree" >/dev/null 2>&1 || status=$?
  if ((status != $1)); then
    echo "expected $1, got $status: $2 with #include $3"
    failures=$((failures + 1))
  fi
}

expect 1 reference/numeric/a.hpp '"reference/tensor/b.hpp"'
expect 1 reference/operators/a.cpp '"reference/forms/b.hpp"'
expect 1 reference/cases/a.cpp '"proofs/b.hpp"'
expect 1 reference/tensor/a.cpp '<reference/cases/b.hpp>'
expect 1 proofs/a.cpp '"gpu_checks/battery/b.hpp"'
expect 1 gpu_checks/kernels/a.cu '"proofs/b.hpp"'
expect 1 fuzz/a.cpp '"reports/b.hpp"'
expect 1 reports/a.cpp '"cli/b.hpp"'
expect 1 fuzz/a.cpp '"fuzz/targets/b.hpp"'
expect 1 cli/a.cpp '"fuzz/targets/b.hpp"'
expect 1 fuzz/targets/a.cpp '"tests/b.hpp"'
expect 1 proofs/a.cpp '"tests/b.hpp"'
expect 1 proofs/a.cpp '"b.hpp"'
expect 1 proofs/a.cpp '"../cli/b.hpp"'
expect 1 reference/misc/a.cpp '"reference/numeric/b.hpp"'
expect 1 reference/tensor/a.hpp '<boost/multiprecision/gmp.hpp>'
expect 1 tests/tensor/a.cpp '<boost/multiprecision/gmp.hpp>'
expect 1 proofs/a.cpp 'HEADER'
expect 0 reference/tensor/a.hpp '"reference/numeric/b.hpp"'
expect 0 reference/numeric/a.hpp '<boost/multiprecision/gmp.hpp>'
expect 0 proofs/a.cpp '"reference/cases/b.hpp"'
expect 0 proofs/a.cpp '"proofs/b.hpp"'
expect 0 fuzz/a.cpp '"gpu_checks/b.hpp"'
expect 0 cli/a.cpp '"reports/b.hpp"'
expect 0 fuzz/targets/a.cpp '"reports/b.hpp"'
expect 0 tests/a.cpp '"fuzz/targets/b.hpp"'
expect 0 tests/numeric/a.cpp '"cli/b.hpp"'
expect 0 proofs/a.cpp '<vector>'
expect 2 docs/a.cpp '<vector>'
if ((failures > 0)); then exit 1; fi
echo "layering_test: every verdict as expected"
