#!/usr/bin/env bash
# The CUDA mutants (gpu_checks/mutants/cuda), each a build of the kernels with one edit, judged by the battery:
#   judge_mutants.sh build FOLDER            libraries for sm_90a: none.so, unmutated, and NAME.so of every mutant (needs nvcc);
#                                            those of a unit ..._mma for sm_80, which any GPU takes as PTX, beside mma.so
#   judge_mutants.sh judge FOLDER PROGRAM    on a GPU: every mutant must FAIL and the unmutated library PASS; a Markdown table.
#                                            Those listed as unseen are asked, named and not counted
# From the root of the repository. Exit status 0 all as it must be, 1 a mutant survived or the unmutated library failed.
# JOBS: how many at a time (the number of cores). GLOB: of the mutants' names. SEED: of the battery (1).
set -euo pipefail

list=gpu_checks/mutants/cuda/cuda_mutants.hpp
jobs="${JOBS:-$(nproc)}"

# number<TAB>name<TAB>family<TAB>unit<TAB>kernel<TAB>what is wrong<TAB>judge
table() {
  sed -nE 's/^ *\{Mutant::[a-z0-9_]+, "([^"]+)", ([0-9]+), "([^"]+)", "([^"]+)", "([^"]+)"(, "([^"]+)")?\},/\1\t\2\t\3\t\4\t\5\t\7/p' "$list" |
    sed 's/\t$/\tbattery/' |
    while IFS=$'\t' read -r name rest; do
      # shellcheck disable=SC2053
      [[ "$name" == ${GLOB:-*} ]] || continue
      printf '%s\t%s\t%s\n' "$(sed -nE "s/^ *$name = ([0-9]+),/\1/p" "$list")" "$name" "$rest"
    done
}

beside() { if [[ "$1" == *_mma ]]; then echo mma; else echo none; fi; } # UNIT: which unmutated library

compile() { # UNIT NUMBER OBJECT BESIDE
  local code=arch=compute_90a,code=sm_90a
  if [[ "$4" == mma ]]; then code='arch=compute_80,code=[compute_80,sm_80]'; fi
  if [[ -f "$3" && -z "$(find gpu_checks/kernels/cuda gpu_checks/mutants/cuda -newer "$3" -print -quit)" ]]; then return; fi
  nvcc -std=c++20 -O3 -gencode "$code" -Xcompiler=-fPIC,-fvisibility=hidden -I. -DATTEST_MUTANT="$2" \
    -c "gpu_checks/kernels/cuda/$1.cu" -o "$3" 2>"$3.log" || { cat "$3.log" >&2; return 1; }
}
objects() { # FOLDER BESIDE: of the unmutated library
  local file
  for file in gpu_checks/kernels/cuda/*.cu; do echo "$1/$2.$(basename "$file" .cu).o"; done
}
build_one() { # FOLDER NUMBER NAME UNIT
  local by
  by="$(beside "$4")"
  compile "$4" "$2" "$1/$3.o" "$by"
  nvcc -shared -cudart static $(objects "$1" "$by" | grep -v "/$by.$4.o") "$1/$3.o" -o "$1/$3.so"
  strip "$1/$3.so"
  rm "$1/$3.o" "$1/$3.o.log"
}
judge_one() { # FOLDER PROGRAM LIBRARY KERNEL JUDGE
  local status=0 asked=(--battery --quick)
  if [[ "$5" == T=* ]]; then asked=(--whole --shape "$5"); fi
  if [[ "$5" == late_path ]]; then asked=(--whole --input "$1/late_path.safetensors"); fi
  if [[ "$5" == racecheck ]]; then
    racecheck "$1" "$3" "$4" >"$1/$3.$4.$5.txt" 2>&1 || status=$?
  else
    "$2" check --plugin "$1/$3.so" --kernel "$4" "${asked[@]}" --seed "${SEED:-1}" --threads 2 >"$1/$3.$4.$5.txt" 2>&1 ||
      status=$?
  fi
  echo "$status" >"$1/$3.$4.$5.status"
}
racecheck() { # FOLDER LIBRARY KERNEL
  mkdir -p "$1/race.$2"
  cp "$1/$2.so" "$1/race.$2/libattest_cuda_kernels.so"
  LD_LIBRARY_PATH="$1/race.$2:${LD_LIBRARY_PATH:-}" compute-sanitizer --tool racecheck --error-exitcode 1 \
    "${DEVICE_CHECK:-build-cuda/tests/cuda_device_check}" small "${3/.masked/}"
}

build() {
  mkdir -p "$1"
  local by
  for by in $(table | cut -f 4 | while read -r unit; do beside "$unit"; done | sort -u); do
    for file in gpu_checks/kernels/cuda/*.cu; do basename "$file" .cu; done |
      xargs -P "$jobs" -I{} "$0" compile {} 0 "$1/$by.{}.o" "$by"
    nvcc -shared -cudart static $(objects "$1" "$by") -o "$1/$by.so"
    strip "$1/$by.so"
  done
  table | awk -F'\t' -v folder="$1" '{print folder, $1, $2, $4}' | xargs -P "$jobs" -L 1 "$0" build_one
}

judge() {
  local survived=0 count=0 number name family unit kernel wrong asked status killers
  python3 tests/cuda/late_path.py "$1/late_path.safetensors"
  { table | awk -F'\t' '{print $2, $5, $7}'; table | awk -F'\t' '{print ($4 ~ /_mma$/ ? "mma" : "none"), $5, $7}' | sort -u; } |
    awk -v folder="$1" -v program="$2" '{print folder, program, $1, $2, $3}' | xargs -P "$jobs" -L 1 "$0" judge_one
  echo "| mutant | family | kernel | what is wrong | rejected by |"
  echo "| --- | ---: | --- | --- | --- |"
  while IFS=$'\t' read -r number name family unit kernel wrong asked; do
    status="$(cat "$1/$name.$kernel.$asked.status")"
    killers="$(sed -nE 's/^ +([a-z]+) +(bitwise|bound|structural) +FAIL.*/\1/p' "$1/$name.$kernel.$asked.txt" | xargs)"
    if [[ "$asked" == unseen ]]; then
      if [[ "$status" != 1 ]]; then killers="not seen"; fi
      echo "| $name | $family | $kernel | $wrong | $killers |"
      continue
    fi
    if [[ "$asked" != battery ]]; then killers="$asked"; fi
    count=$((count + 1))
    if [[ "$status" != 1 ]]; then survived=$((survived + 1)) killers="**SURVIVED** (exit status $status)"; fi
    echo "| $name | $family | $kernel | $wrong | $killers |"
  done < <(table)
  for status in "$1"/none.*.status "$1"/mma.*.status; do
    [[ -f "$status" ]] || continue
    [[ "$(cat "$status")" == 0 ]] || { survived=$((survived + 1)); echo "unmutated: $status: exit status $(cat "$status")"; }
  done
  echo
  echo "$count mutants, $survived survived or unmutated kernels that failed"
  [[ "$count" -gt 0 && "$survived" -eq 0 ]]
}

case "${1:-}" in
  build | judge | compile | build_one | judge_one) "$@" ;;
  *)
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
