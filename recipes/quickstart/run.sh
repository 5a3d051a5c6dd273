#!/usr/bin/env bash
# From a generated corpus to a score, in FOLDER or recipes/quickstart/run.
# run.sh [FOLDER [OPTIONS of generate.py ...]]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../environment.sh"
run=${1:-$here/run}
shift $(($# > 0))

python "$here/generate.py" --out "$run/corpus" "$@"
# shellcheck disable=SC2086 # PREPROCESS holds options
nmt preprocess --config "$here/preprocess.toml" --source-lang en --target-lang de \
    --train "$run/corpus/train" --valid "$run/corpus/valid" --test "$run/corpus/test" --out "$run/dataset" --overwrite ${PREPROCESS:-}
rm -rf "$run/training" "$run/model"
nmt train "$run/dataset" --config "$here/train.toml" --out "$run/training"
nmt average-checkpoints "$run/training" --last 3 --out "$run/model"
nmt translate "$run/model" <"$run/corpus/test.en" >"$run/translations.de"

echo
nmt score --reference "$run/corpus/test.de" --metric bleu --metric chrf <"$run/translations.de" | tee "$run/score.txt"
echo
echo "Source, translation and reference of the first four lines:"
paste -d '\n' "$run/corpus/test.en" "$run/translations.de" "$run/corpus/test.de" /dev/null | sed -n 1,16p
echo "Curves of the training: $run/training/report.html"
echo "More translations: nmt translate $run/model"
