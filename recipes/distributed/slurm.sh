#!/usr/bin/env bash
# sbatch slurm.sh DATASET RUN: one process per GPU. The run saves before its time is up, and Slurm requeues it.
#SBATCH --job-name=nmt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=4
#SBATCH --time=12:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
dataset=$1 run=$2

srun nmt train "$dataset" --preset vaswani2017-base --out "$run" || {
    code=$?
    if [ "$code" -eq 143 ]; then # stopped and saved
        scontrol requeue "$SLURM_JOB_ID"
    fi
    exit "$code"
}
