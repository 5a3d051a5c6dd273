#!/usr/bin/env bash
# Multi30k from English: run.sh [-d DATA] [-o OUT] [-s SEED] [-p PENALTIES] SETTINGS LANGUAGE [UPDATES ...]
# SETTINGS is raw/tiny, tok/tiny or another settings file here. LANGUAGE is de or fr. After each number of UPDATES,
# the recipe chooses a model, a length penalty and a beam on the validation set, and scores the test sets. Run the
# same command again to resume.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../environment.sh"
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
if [ ${#stages[@]} -eq 0 ]; then
    read -ra stages < <(python "$here/results.py" stages "$here/$settings.toml")
fi
source "$here/texts.sh"

dataset=$out/$text-en-$language
run=$out/${settings/\//-}-en-$language-$seed

before=
choose_and_score() { # UPDATES
    local stage=$run/$1
    mkdir -p "$stage"
    nmt average-checkpoints "$run/training" --select --out "$stage/model" \
        --licence "none stated; meant for non-commercial research and education" | tee "$stage/selection.txt"
    translate_and_score "$stage" "$penalties" "$stage/model"
    python "$here/results.py" record "$stage" --settings "$settings" --language "$language" --beam "$beam" \
        --penalty "$penalty"
}

# shellcheck disable=SC2086 # PREPROCESS holds options
nmt preprocess --config "$here/$text/preprocess.toml" --source-lang en --target-lang "$language" \
    --train "$folder/train$end" --valid "$folder/valid$end" --out "$dataset" ${PREPROCESS:-}
for updates in "${stages[@]}"; do
    if [ ! -f "$run/$updates/result.json" ]; then
        nmt train "$dataset" --preset tiny --config "$here/$settings.toml" --seed "$seed" --max-steps "$updates" \
            --out "$run/training"
        choose_and_score "$updates"
    fi
done
python "$here/results.py" show "$run"
