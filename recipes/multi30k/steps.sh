#!/usr/bin/env bash
# What each step towards better translations is worth: steps.sh [-d DATA] [-o OUT] [-p PENALTIES] LANGUAGE STAGE ...
# A STAGE is a folder of run.sh, such as run/tok-tiny-en-de-1/8000. Scored are the last checkpoint of the first one,
# the model chosen there, that of each other STAGE, all of these models together, and of the beam of these the
# translation that agrees most with the others (search.mbr), each with the length penalty and beam that the validation
# set likes best, and compared with the one before by paired bootstrap. All goes into OUT/steps.
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
    sed -n '2,6s/^# //p' "$0" >&2
    exit 2
fi
language=$1 stages=("${@:2}")
text=$(basename "$(dirname "$2")")
text=${text%%-*}
source "$here/texts.sh"

first=${stages[0]}
last=$(dirname "$first")/training/checkpoints/step-$(printf %08d "$(basename "$first")")
for model in "$last" "${stages[@]/%//model}"; do
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
step "$(named "$first"), last checkpoint" "$last"
for stage in "${stages[@]}"; do
    step "$(named "$stage"), chosen" "$stage/model"
done
[ ${#stages[@]} -eq 1 ] || step "all ${#stages[@]} chosen ones together" "${stages[@]/%//model}"
step "the same, minimum Bayes risk" "${stages[@]/%//model}" --set search.mbr=bleu
python "$here/results.py" steps "$out/steps"
