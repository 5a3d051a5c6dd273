#!/usr/bin/env bash
# Back-translation on Multi30k, English to German: run.sh [-d DATA] [-o OUT] [-s SEED] [UPDATES]
# A third of the training pairs is bitext. The German side of the other pairs is monolingual text. Scores a model
# of the bitext, and a model of bitext and synthetic pairs. Run the same command again to resume.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../environment.sh"
data=${NMT_DATA:+$NMT_DATA/multi30k} out=$here/run seed=1
while getopts d:o:s: option; do
    case $option in
        d) data=$OPTARG ;;
        o) out=$OPTARG ;;
        s) seed=$OPTARG ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ -z "$data" ]; then
    sed -n '2,4s/^# //p' "$0" >&2
    exit 2
fi
updates=${1:-2000} test=test_2016_flickr

train() { # NAME
    nmt train "$out/$1/dataset" --preset tiny --config "$here/train.toml" --seed "$seed" --max-steps "$updates" \
        --out "$out/$1/training"
}

mkdir -p "$out"
if [ "$(cat "$out/updates" 2>/dev/null || echo "$updates")" != "$updates" ]; then
    echo "Error: $out holds a run of $(cat "$out/updates") updates; choose another folder with -o." >&2
    exit 1
fi
echo "$updates" >"$out/updates"
for language in en de; do
    awk 'NR % 3 == 1' "$data/train.$language" >"$out/bitext.$language"
done
awk 'NR % 3 != 1' "$data/train.de" >"$out/synthetic.de"

# Translate the monolingual text into English.
# shellcheck disable=SC2086 # PREPROCESS holds options
nmt preprocess --config "$here/preprocess.toml" --source-lang de --target-lang en \
    --train "$out/bitext" --valid "$data/valid" --out "$out/back/dataset" ${PREPROCESS:-}
train back
if [ ! -f "$out/sampled.en" ]; then
    nmt translate "$out/back/training" --set search.sample=true --set search.top_k=10 --set "search.seed=$seed" \
        --input "$out/synthetic.de" --output "$out/sampled.en"
fi
sed 's/^./<BT> &/' "$out/sampled.en" >"$out/synthetic.en" # an empty line stays empty, and is left out

# Train from English to German, without and with synthetic pairs.
# shellcheck disable=SC2086 # PREPROCESS holds options
nmt preprocess --config "$here/preprocess.toml" --set 'tokenizer.symbols=["<BT>"]' --source-lang en --target-lang de \
    --train "$out/bitext" --valid "$data/valid" --out "$out/without/dataset" ${PREPROCESS:-}
nmt preprocess --reuse-tokenizer "$out/without/dataset" --source-lang en --target-lang de \
    --train "$out/bitext" --train "$out/synthetic" --valid "$data/valid" --out "$out/with/dataset"
for system in without with; do
    train "$system"
    nmt average-checkpoints "$out/$system/training" --select --out "$out/$system/model" |
        tee "$out/$system/selection.txt"
    nmt translate "$out/$system/model" --beam 5 --input "$data/$test.en" --output "$out/$system/$test.de"
done

nmt score --metric bleu --significance randomization --json --reference "$data/$test.de" \
    "$out/without/$test.de" "$out/with/$test.de" >"$out/scores.json"
python "$here/results.py" record "$out"
