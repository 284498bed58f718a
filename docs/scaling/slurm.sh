#!/bin/bash
# Eight shards; a task that is stopped by its time limit is followed by another that goes on where it was.
#   sbatch docs/scaling/slurm.sh                 all of them
#   sbatch --array=3,7 docs/scaling/slurm.sh     two of them once more
#   touchstone merge results --gate              when they have ended; before, it says what is missing
#SBATCH --job-name=touchstone
#SBATCH --array=1-8
#SBATCH --gpus-per-task=1
#SBATCH --time=04:00:00
set -euo pipefail
script="${TOUCHSTONE_SCRIPT:-$SLURM_SUBMIT_DIR/docs/scaling/slurm.sh}"
tries="${TOUCHSTONE_TRIES:-5}"
if [ "$tries" -gt 1 ]; then
    sbatch --array="$SLURM_ARRAY_TASK_ID" --kill-on-invalid-dep=yes \
        --dependency="afternotok:${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" \
        --export="ALL,TOUCHSTONE_TRIES=$((tries - 1)),CHECKPOINT=$CHECKPOINT" "$script"
fi
srun touchstone run --checkpoint "$CHECKPOINT" --eval-shard "$SLURM_ARRAY_TASK_ID/8"
