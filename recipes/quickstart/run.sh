#!/usr/bin/env bash
# The quickstart recipe: makes the corpus and the dataset, in recipes/quickstart/run or the folder given.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
run=${1:-$here/run}

python "$here/generate.py" --out "$run/corpus"
nmt preprocess --config "$here/quickstart.toml" --source-lang en --target-lang de \
    --train "$run/corpus/train" --valid "$run/corpus/valid" --test "$run/corpus/test" --out "$run/dataset" --overwrite
