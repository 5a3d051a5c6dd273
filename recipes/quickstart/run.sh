#!/usr/bin/env bash
# The quickstart recipe: corpus, dataset and model, in recipes/quickstart/run or the folder given.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
run=${1:-$here/run}

python "$here/generate.py" --out "$run/corpus"
# The test set is judged along with the validation set, which alone decides which checkpoint is the best.
nmt preprocess --config "$here/preprocess.toml" --source-lang en --target-lang de \
    --train "$run/corpus/train" --valid "$run/corpus/valid" --valid "$run/corpus/test" --out "$run/dataset" --overwrite
rm -rf "$run/model"
nmt train "$run/dataset" --config "$here/train.toml" --out "$run/model"
