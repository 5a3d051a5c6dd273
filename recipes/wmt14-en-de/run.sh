#!/usr/bin/env bash
# WMT14 English-German from the published archives to scored translations, in FOLDER or in run/ beside this script.
# run.sh [FOLDER [OPTIONS of nmt train ...]] README.md explains the variables MODEL, DATA, TRAIN and PREPROCESS.
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
case ${DATA:=wmt14} in
wmt14)
    list=downloads.toml config=preprocess.toml
    train=(--train "$corpus/europarl-v7" --train "$corpus/commoncrawl"
        --train "$corpus/news-commentary-v9") ;;
google)
    list=downloads-google.toml config=preprocess-google.toml
    train=(--train "$corpus/google") ;;
*) echo "Error: DATA is '$DATA'; give wmt14 or google." >&2 && exit 2 ;;
esac

python "$here/../download.py" "${DOWNLOADS:-$here/$list}" --out "$corpus"
if [ "$DATA" = google ] && [ ! -e "$corpus/google.de" ]; then
    for side in en de; do
        python "$here/detokenize.py" "$side" <"$corpus/google-bpe.$side" >"$corpus/google.unfinished"
        mv "$corpus/google.unfinished" "$corpus/google.$side"
    done
fi

# shellcheck disable=SC2086 # PREPROCESS holds options
nmt preprocess --config "$here/$config" --source-lang en --target-lang de "${train[@]}" \
    --valid "$corpus/newstest2013.en.sgm:$corpus/newstest2013.de.sgm" \
    --test "$corpus/newstest2014-full.en.sgm:$corpus/newstest2014-full.de.sgm" \
    --test "$corpus/newstest2014-filtered.en.sgm:$corpus/newstest2014-filtered.de.sgm" \
    --out "$run/dataset-$DATA" ${PREPROCESS:-}

results=$run/$DATA-$MODEL
# shellcheck disable=SC2086 # TRAIN is a command with its options
${TRAIN:-nmt train} "$run/dataset-$DATA" --preset "vaswani2017-$MODEL" --config "$here/$MODEL.toml" \
    --out "$results/training" "$@"
nmt average-checkpoints "$results/training" --last "$last" --out "$results/model"

for set in newstest2014-full newstest2014-filtered; do
    reference=$run/dataset-$DATA/$set.target.raw.txt
    nmt translate "$results/model" --config "$here/translate.toml" \
        --input "$run/dataset-$DATA/$set.source.raw.txt" --output "$results/$set.de"
    score=(--reference "$reference" --target-lang de "$results/$set.de")
    nmt score "${score[@]}" --json >"$results/$set.json"
    echo "$set, $(wc -l <"$reference") lines, $DATA data, $MODEL model:"
    nmt score "${score[@]}"
done
