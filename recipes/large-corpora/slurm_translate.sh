#!/usr/bin/env bash
# sbatch --array=1-16 slurm_translate.sh MODEL CHUNKS [OPTIONS of nmt translate ...]
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=4
#SBATCH --requeue
set -euo pipefail
model=$1 chunks=$2
shift 2

here=${SLURM_SUBMIT_DIR:-$(dirname "$0")}  # Slurm runs a copy of this file
"$here/translate.sh" "$model" "$chunks" "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" "$@"
