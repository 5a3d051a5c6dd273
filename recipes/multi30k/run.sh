#!/usr/bin/env bash
# Multi30k from English: run.sh [-d DATA] [-o OUT] [-s SEED] [-p PENALTIES] SETTINGS LANGUAGE [UPDATES ...]
# SETTINGS is raw/tiny, tok/tiny or another such file here, LANGUAGE de or fr. After each number of UPDATES it
# chooses a model and a length penalty on the validation set, and scores the test sets. The same command again
# goes on where it stands.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data=${NMT_DATA:+$NMT_DATA/multi30k} out=$here/run seed=1 penalties="0 0.3 0.6 1 1.4 2 3"
while getopts d:o:s:p: option; do
    case $option in
        d) data=$OPTARG ;;
        o) out=$OPTARG ;;
        s) seed=$OPTARG ;;
        p) penalties=$OPTARG ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ $# -lt 2 ] || [ -z "$data" ] || [ ! -f "$here/$1.toml" ]; then
    sed -n '2,5s/^# //p' "$0" >&2
    echo "DATA is \$NMT_DATA/multi30k if not given; settings: $(cd "$here" && echo {raw,tok}/tiny*.toml)" >&2
    exit 2
fi
settings=$1 text=${1%%/*} language=$2
stages=("${@:3}")
[ ${#stages[@]} -gt 0 ] || stages=(1000 2000 4000 8000)

case $text in
    raw) folder=$data end= ;;
    tok) folder=$data/tok end=.lc.norm.tok ;;
esac
shopt -s nullglob # a file may be packed: valid.en or valid.en.gz
dataset=$out/$text-en-$language
run=$out/${settings/\//-}-en-$language-$seed

of() { # NAME LANGUAGE: its file
    local found=("$folder/$1$end.$2" "$folder/$1$end.$2".*)
    [ -e "${found[0]}" ] || found=("${found[@]:1}")
    echo "${found[0]-$folder/$1$end.$2}"
}

translated() { # NAME PENALTY OUTPUT
    nmt translate "$model" --beam 5 --length-penalty "$2" --input "$(of "$1" en)" --output "$3"
}

scored() { # NAME HYPOTHESES ...
    nmt score --config "$here/$text/score.toml" --metric bleu --json --reference "$(of "$1" "$language")" "${@:2}"
}

choose_and_score() { # UPDATES
    local stage=$run/$1 model=$run/$1/model penalty best name
    mkdir -p "$stage"
    nmt average-checkpoints "$run/training" --select --out "$model" \
        --licence "none stated; meant for non-commercial research and education" | tee "$stage/selection.txt"
    for penalty in $penalties; do
        translated valid "$penalty" "$stage/valid-$penalty.$language"
    done
    scored valid "$stage"/valid-*."$language" >"$stage/valid.json"
    best=$(python "$here/../results.py" "$stage/valid.json")
    penalty=${best##*/valid-}
    penalty=${penalty%."$language"}
    for name in "$folder"/test_*"$end".en{,.*}; do
        name=${name##*/}
        name=${name%%"$end".en*}
        translated "$name" "$penalty" "$stage/$name.$language"
        scored "$name" "$stage/$name.$language" >"$stage/$name.json"
    done
    python "$here/results.py" record "$stage" --settings "$settings" --language "$language" --penalty "$penalty"
}

nmt preprocess --config "$here/$text/preprocess.toml" --source-lang en --target-lang "$language" \
    --train "$folder/train$end" --valid "$folder/valid$end" --out "$dataset"
for updates in "${stages[@]}"; do
    if [ ! -f "$run/$updates/result.json" ]; then
        nmt train "$dataset" --preset tiny --config "$here/$settings.toml" --seed "$seed" --max-steps "$updates" \
            --out "$run/training"
        choose_and_score "$updates"
    fi
done
python "$here/results.py" show "$run"
