#!/usr/bin/env bash
# search.sh PROGRAM FOLDER CORPUS...: a target with libFuzzer for $ATTEST_FUZZ_SECONDS (60), from the corpora and from what
# earlier searches have left in FOLDER. An input that is a fault, a leak, too slow or too large stays in FOLDER, and the
# exit status is 1.
set -uo pipefail
program="$1" folder="$2"
shift 2
mkdir -p "$folder/corpus"
if "$program" -max_total_time="${ATTEST_FUZZ_SECONDS:-60}" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
  -artifact_prefix="$folder/" "$folder/corpus" "$@" >"$folder/log" 2>&1; then
  echo "$(basename "$program"): $(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/log") inputs, $(
    sed -n 's/^#.*DONE *cov: \([0-9]*\).*/\1/p' "$folder/log") edges, nothing found"
else
  grep -E '^(fault|fuzz|==[0-9]+==|SUMMARY|terminate|  what)|ERROR|artifact_prefix' "$folder/log"
  echo "$(basename "$program"): found, all of it in $folder/log"
  exit 1
fi
