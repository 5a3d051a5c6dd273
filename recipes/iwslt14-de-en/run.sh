#!/usr/bin/env bash
# IWSLT14 German-English from the published archive to scored translations, in FOLDER or in run/ beside this script.
# run.sh [FOLDER [OPTIONS of nmt train ...]] README.md explains the variables TRAIN and PREPROCESS.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../environment.sh"
run=${1:-$here/run}
shift $(($# > 0))
corpus=$run/corpus

python "$here/../download.py" "${DOWNLOADS:-$here/downloads.toml}" --out "$corpus"
if [ ! -e "$corpus/words" ]; then
    python "$here/prepare.py" "$corpus/original" --out "$corpus/words.unfinished"
    mv "$corpus/words.unfinished" "$corpus/words"
fi
# shellcheck disable=SC2086 # PREPROCESS holds options
nmt preprocess --config "$here/preprocess.toml" --source-lang de --target-lang en \
    --train "$corpus/words/train" --valid "$corpus/words/valid" --test "$corpus/words/test" \
    --out "$run/dataset" ${PREPROCESS:-}

# shellcheck disable=SC2086 # TRAIN is a command with its options
${TRAIN:-nmt train} "$run/dataset" --preset iwslt14 --config "$here/train.toml" --out "$run/training" "$@"
nmt average-checkpoints "$run/training" --last 10 --out "$run/average"

for model in training average; do # of a run folder, the best checkpoint translates
    nmt translate "$run/$model" --config "$here/translate.toml" \
        --input "$corpus/words/test.de" --output "$run/$model.en"
done
score=(--config "$here/score.toml" --reference "$corpus/words/test.en" --metric bleu
    "$run/training.en" "$run/average.en")
nmt score "${score[@]}" --json >"$run/scores.json"
nmt score "${score[@]}"
