#!/usr/bin/env bash
# Two machines of eight GPUs each. On the first: two_nodes.sh 0 FIRST_HOST DATASET RUN. On the second: 1 instead of 0.
set -euo pipefail
rank=$1 first=$2 dataset=$3 run=$4

torchrun --nnodes 2 --node-rank "$rank" --nproc-per-node 8 --master-addr "$first" --master-port 29500 \
    -m nmt_cli train "$dataset" --preset vaswani2017-base --out "$run"
