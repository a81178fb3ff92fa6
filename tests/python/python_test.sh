#!/usr/bin/env bash
# python_test.sh BUILD [PYTEST OPTION...]: installs the Python package into BUILD/python from this tree, without the
# network, and runs its tests. Exit status 77 (not run) where that environment lacks what ./dev python puts there.
set -euo pipefail
build="$(cd "${1:?usage: python_test.sh BUILD [PYTEST OPTION...]}" && pwd)"
root="$(cd "$(dirname "$0")/../.." && pwd)"
python="$build/python/bin/python"

for module in nanobind numpy pytest scikit_build_core; do
  if ! "$python" -c "import $module" 2>/dev/null; then
    echo "NOT RUN: there is no $module in $build/python; ./dev python puts it there (from PyPI)"
    exit 77
  fi
done
log="$build/python/install.log"
"$python" -m pip install --no-index --no-deps --no-build-isolation --disable-pip-version-check \
  --config-settings=build-dir="$build/python_package" --config-settings=cmake.define.attest_DIR="$build" "$root/cli/python" >"$log" 2>&1 ||
  { cat "$log"; echo "python_test: the package cannot be installed" >&2; exit 1; }
cd "$root"
"$python" -m pytest -q -p no:cacheprovider tests/python "${@:2}"
