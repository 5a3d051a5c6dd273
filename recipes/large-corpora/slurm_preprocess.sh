#!/usr/bin/env bash
# sbatch --array=1-16 slurm_preprocess.sh [OPTIONS of nmt preprocess ...]
#SBATCH --cpus-per-task=16
#SBATCH --requeue
set -euo pipefail

nmt preprocess "$@" --workers "${SLURM_CPUS_PER_TASK:-2}" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
