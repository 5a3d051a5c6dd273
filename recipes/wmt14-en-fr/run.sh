#!/usr/bin/env bash
# WMT14 English-French from the published archives to scored translations, in FOLDER or in run/ beside this script.
# run.sh [FOLDER [OPTIONS of nmt train ...]] README.md explains the variables MODEL, TRAIN and PREPROCESS.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../environment.sh"
run=${1:-$here/run}
shift $(($# > 0))
corpus=$run/corpus

case ${MODEL:=base} in
base) last=5 ;;
big) last=20 ;;
*) echo "Error: MODEL is '$MODEL'; give base or big." >&2 && exit 2 ;;
esac

python "$here/../download.py" "${DOWNLOADS:-$here/downloads.toml}" --out "$corpus"
# shellcheck disable=SC2086 # PREPROCESS holds options
nmt preprocess --config "$here/preprocess.toml" --source-lang en --target-lang fr \
    --train "$corpus/europarl-v7" --train "$corpus/commoncrawl" --train "$corpus/news-commentary-v9" \
    --train "$corpus/undoc.2000" --train "$corpus/giga-fren" \
    --valid "$corpus/newstest2013.en.sgm:$corpus/newstest2013.fr.sgm" \
    --test "$corpus/newstest2014.en.sgm:$corpus/newstest2014.fr.sgm" \
    --out "$run/dataset" ${PREPROCESS:-}

results=$run/$MODEL
# shellcheck disable=SC2086 # TRAIN is a command with its options
${TRAIN:-nmt train} "$run/dataset" --preset "vaswani2017-$MODEL" --config "$here/$MODEL.toml" \
    --out "$results/training" "$@"
nmt average-checkpoints "$results/training" --last "$last" --out "$results/model"

reference=$run/dataset/newstest2014.target.raw.txt
nmt translate "$results/model" --config "$here/translate.toml" \
    --input "$run/dataset/newstest2014.source.raw.txt" --output "$results/newstest2014.fr"
score=(--reference "$reference" --target-lang fr "$results/newstest2014.fr")
nmt score "${score[@]}" --json >"$results/newstest2014.json"
echo "newstest2014, $(wc -l <"$reference") lines, $MODEL model:"
nmt score "${score[@]}"
