#!/usr/bin/env bash
# One run of attest as a Slurm job array, one shard a task; a task that was killed and queued again goes on where it was.
#   sbatch --array=1-64 slurm_array.sh check --battery --full --seed 1
# and when all tasks have ended, in the same folder:
#   sbatch --dependency=afterany:JOB --wrap 'attest merge shards/* --output records.jsonl'
#SBATCH --job-name=attest
#SBATCH --cpus-per-task=8
#SBATCH --mem=16G
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --output=attest-%a.log
set -uo pipefail
mkdir -p shards
part="shards/$SLURM_ARRAY_TASK_ID"
# check writes a folder and goes on with --resume (the kill matrix is made as a whole); prove writes a file.
results=(--output "$part")
[[ " $* " == *" --mutants "* ]] || results+=(--resume)
[[ "$1" == prove ]] && results=(--json "$part.json")
"${ATTEST:-attest}" "$@" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" \
  --threads "${SLURM_CPUS_PER_TASK:-0}" "${results[@]}"
status=$?
# A failed, an undecided or an empty shard is a result: attest merge says what the whole run says.
((status == 1 || status == 3 || status == 77)) && exit 0
exit "$status"
