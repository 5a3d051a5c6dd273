#!/usr/bin/env bash
# Print the number of parameters of every row at the paper's widths and 37,000 subwords: parameters.sh FOLDER >parameters.txt
# Nothing is trained. nmt train --dry-run needs a dataset, so this makes one in which each number is a word.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../environment.sh"
mkdir -p "$1"
seq 40000 | tee "$1/numbers.en" >"$1/numbers.de"
nmt preprocess --tokenizer word --vocab-size 37000 --source-lang en --target-lang de --train "$1/numbers" \
    --out "$1/dataset" >&2
for row in $(python "$here/results.py" rows) big; do
    # shellcheck disable=SC2046 # the variable holds several words
    nmt train "$1/dataset" --preset vaswani2017-base $(python "$here/results.py" settings "$row" --factor 1) \
        --max-tokens-per-device 64 --out "$1/run" --dry-run >"$1/plan.txt" 2>"$1/log.txt"
    echo "$row $(sed -n 's/^parameters *//p' "$1/plan.txt")"
done
