#!/usr/bin/env bash
# Measure the gain of each step towards better translations: steps.sh [-d DATA] [-o OUT] [-p PENALTIES] LANGUAGE STAGE ...
# A STAGE is a folder of run.sh, such as run/tok-tiny-en-de-1/8000. It scores the last checkpoint of the first
# STAGE, the model chosen there, the model of each other STAGE, the ensemble of all of them, and the ensemble with
# minimum Bayes risk (search.mbr). Each has the length penalty and beam that are best on the validation set, and is
# compared with the previous one by approximate randomization. A STAGE may also be a student of recipes/distillation, such as
# run/tok-tiny-1/student. As the first STAGE, it has no row of its last checkpoint. All files go into OUT/steps.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../environment.sh"
data=${NMT_DATA:+$NMT_DATA/multi30k} out=$here/run penalties="0 0.3 0.6 1 1.4 2 3"
while getopts d:o:p: option; do
    case $option in
        d) data=$OPTARG ;;
        o) out=$OPTARG ;;
        p) penalties=$OPTARG ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ $# -lt 2 ] || [ -z "$data" ] || [ ! -d "$2/model" ]; then
    sed -n '2,7s/^# //p' "$0" >&2
    exit 2
fi
language=$1 stages=("${@:2}")
text=$(basename "$(dirname "$2")")
text=${text%%-*}
source "$here/texts.sh"

first=${stages[0]}
last=()
if [[ $(basename "$first") =~ ^[0-9]+$ ]]; then
    last=("$(dirname "$first")/training/checkpoints/step-$(printf %08d "$(basename "$first")")")
fi
for model in "${last[@]}" "${stages[@]/%//model}"; do
    [ -d "$model" ] || { echo "Error: there is no $model (any more); name stages of run.sh, first its newest." >&2; exit 1; }
done

number=0 before=
step() { # NAME MODEL ...
    local to
    number=$((number + 1)) to=$out/steps/$number
    mkdir -p "$to"
    echo "$1" >"$to/name.txt"
    translate_and_score "$to" "$penalties" "${@:2}"
    before=$to
}

named() { # STAGE
    local run
    run=$(basename "$(dirname "$1")")
    echo "${run/-/\/} after $(basename "$1")"
}

rm -rf "$out/steps"
[ ${#last[@]} -eq 0 ] || step "$(named "$first"), last checkpoint" "${last[@]}"
for stage in "${stages[@]}"; do
    step "$(named "$stage"), chosen" "$stage/model"
done
[ ${#stages[@]} -eq 1 ] || step "all ${#stages[@]} chosen ones together" "${stages[@]/%//model}"
step "the same, minimum Bayes risk" "${stages[@]/%//model}" --set search.mbr=chrf
python "$here/results.py" steps "$out/steps"
