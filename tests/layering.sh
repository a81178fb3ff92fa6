#!/usr/bin/env bash
# layering.sh ROOT: refuses every include that points to a later layer, to no layer, or to Boost outside reference/numeric.
# Layers: numeric, tensor, operators, forms, metrics, cases, {proofs, gpu_checks}, fuzz, reports, cli. Tests may include them all;
# fuzz/targets, programs of their own like the tests, all but the tests.
# tests/package/example is a project of somebody else.
set -euo pipefail
cd "${1:?usage: layering.sh ROOT}"

folders=()
for folder in reference proofs gpu_checks fuzz reports cli tests; do
  if [[ -d "$folder" ]]; then folders+=("$folder"); fi
done
((${#folders[@]} > 0)) || { echo "layering: no layer below $PWD" >&2; exit 2; }

{ grep -rnE '^[[:space:]]*#[[:space:]]*include' --include='*.hpp' --include='*.cpp' --include='*.h' --include='*.c' \
  --include='*.cu' --include='*.cuh' --include='*.inc' --exclude-dir=example "${folders[@]}" || true; } | awk '
BEGIN {
  split("reference/numeric reference/tensor reference/operators reference/forms reference/metrics reference/cases " \
        "proofs fuzz reports cli fuzz/targets", order, " ")
  for (i in order) rank[order[i]] = i + 0
  rank["gpu_checks"] = rank["proofs"]
}
function layer(path,   parts) {
  split(path, parts, "/")
  return parts[1] == "reference" || path ~ /^fuzz\/targets\// ? parts[1] "/" parts[2] : parts[1]
}
function refuse(why) {
  print file ":" line ": " why
  refused = 1
}
{
  split($0, fields, ":")
  file = fields[1]
  line = fields[2]
  here = layer(file)
  is_test = here == "tests"
  match($0, /include[[:space:]]*[<"][^>"]*[>"]/)
  if (!RSTART) { refuse("an include by a macro cannot be checked"); next }
  included = substr($0, RSTART, RLENGTH)
  quoted = included ~ /"$/
  gsub(/^include[[:space:]]*[<"]|[>"]$/, "", included)
  count++
  if (included ~ /^boost\//) {
    if (here != "reference/numeric" && file !~ /^tests\/(numeric|bench)\//) refuse("<" included "> belongs to reference/numeric")
    next
  }
  there = layer(included)
  if (!quoted && !(there in rank)) next
  if (!is_test && !(here in rank)) { refuse(here " is not a layer"); next }
  if (is_test && there == "tests") next
  if (!(there in rank)) { refuse("\"" included "\" is not a path from the root to a layer"); next }
  if (is_test || here == there) next
  if (rank[there] >= rank[here]) refuse(here " comes before " there " and must not include \"" included "\"")
}
END {
  if (!refused) print "layering: " count + 0 " includes follow the layers"
  exit refused
}'
