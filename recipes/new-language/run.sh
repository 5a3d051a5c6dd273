#!/usr/bin/env bash
# Add a language to a model of the shape of NLLB from 500 pairs, with and without what the model knew: run.sh [OUT]
# OLD, NEW and ALONE are numbers of steps: of the model, of the new language, and of the same model from scratch.
# TRAIN and TEST are numbers of pairs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../environment.sh"
out=${1:-$here/run}
text=$out/text settings=(--batch-tokens 1500 --set schedule.kind=linear --set schedule.peak=0.003)

[ -d "$out/nllb" ] || python "$here/make.py" "$out" "${TRAIN:-20000}" "${TEST:-500}"

# The model that is to be fitted: English to German, trained from random weights.
[ -d "$out/random" ] ||
    nmt import "$out/nllb" --source-lang eng_Latn --target-lang deu_Latn --out "$out/random"
pairs() { # NAME LINES FIRST LANGUAGE ENDING CODE [TEXT]: write pairs, with a code before the targets
    mkdir -p "$out/$4"
    tail -n "+$3" "$text/${7:-train}.en" | sed -n "1,$2p" >"$out/$4/$1.eng_Latn"
    tail -n "+$3" "$text/${7:-train}.$5" | sed -n "1,$2s/^/$6/p" >"$out/$4/$1.$4"
}
pairs train 20000 1 deu_Latn de ""
pairs valid 300 1 deu_Latn de "" valid
nmt preprocess --source-lang eng_Latn --target-lang deu_Latn --train "$out/deu_Latn/train" --valid "$out/deu_Latn/valid" \
    --reuse-tokenizer "$out/random" --out "$out/old"
nmt train "$out/old" --config "$out/random/train.toml" "${settings[@]}" --set schedule.warmup=100 \
    --max-steps "${OLD:-600}" --validate-every "${OLD:-600}" --out "$out/pretrained"

# The new language: 500 pairs, and 2,500 of the old one.
sed -n 1,500p "$text/train.tyv" >"$out/mine.tyv"
[ -d "$out/start" ] || nmt import "$out/pretrained" --keep eng_Latn,deu_Latn --add tyv_Cyrl=deu_Latn --pieces 300 \
    --target-lang tyv_Cyrl --text "$text/train.en" --text "$text/train.de" --text "$out/mine.tyv" --out "$out/start"
pairs new 500 1 tyv_Cyrl tyv ""
pairs old 2500 501 tyv_Cyrl de "deu_Latn "
pairs valid-new 300 1 tyv_Cyrl tyv "" valid
pairs valid-old 300 1 tyv_Cyrl de "deu_Latn " valid
train() { # NAME STEPS OPTION...
    local name=$1 steps=$2
    shift 2
    nmt train "$out/$name-data" --config "$out/start/train.toml" "${settings[@]}" --set schedule.warmup=50 \
        --set sampling.target=0.1 --max-steps "$steps" --validate-every "$steps" "$@" --out "$out/$name"
}
languages=(--source-lang eng_Latn --target-lang tyv_Cyrl)
new=$out/tyv_Cyrl
nmt preprocess "${languages[@]}" --train "$new/new" --train "$new/old" --valid "$new/valid-new" --valid "$new/valid-old" \
    --reuse-tokenizer "$out/start" --out "$out/fitted-data"
nmt preprocess "${languages[@]}" --train "$new/new" --valid "$new/valid-new" --reuse-tokenizer "$out/start" \
    --out "$out/scratch-data"
train fitted "${NEW:-700}" --init-from "$out/start" --set 'mixing.weights={new=1, old=1}'
train scratch "${ALONE:-350}"

score() { # MODEL LANGUAGE REFERENCE
    nmt translate "$out/$1" --source-lang eng_Latn --target-lang "$2" --input "$text/test.en" \
        --output "$out/$1.$2" --quiet
    nmt score --reference "$text/test.$3" "$out/$1.$2" --quiet
}
score pretrained deu_Latn de
score fitted deu_Latn de
score fitted tyv_Cyrl tyv
score scratch tyv_Cyrl tyv
