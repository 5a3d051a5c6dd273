#!/usr/bin/env bash
# Constituency parsing: run.sh [-d DATA] [-o OUT] [-s SEED] SETTINGS [OPTIONS of nmt train ...]
# SETTINGS is gum, wsj or wsj-semi. DATA has train.trees (and train-*.trees), valid.trees and test.trees, with one
# bracketed tree per line. Scores a model and right-branching trees. The same command resumes a stopped run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../environment.sh"
data=${NMT_DATA:+$NMT_DATA/treebank} out=$here/run seed=1
while getopts d:o:s: option; do
    case $option in
        d) data=$OPTARG ;;
        o) out=$OPTARG ;;
        s) seed=$OPTARG ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ $# -lt 1 ] || [ -z "$data" ] || [ ! -f "$here/$1/train.toml" ]; then
    sed -n '2,4s/^# //p' "$0" >&2
    echo "DATA is \$NMT_DATA/treebank if not given." >&2
    exit 2
fi
settings=$1 preset=(--preset parsing)
[ "$settings" != gum ] || preset=()
run=$out/$settings-$seed corpus=$out/$settings/corpus dataset=$out/$settings/dataset
shift

module() { # NAME ARGUMENTS ...: a module of this recipe
    PYTHONPATH=$here/../..${PYTHONPATH:+:$PYTHONPATH} PYTHONIOENCODING=utf-8:surrogateescape python -m "recipes.parsing.$1" "${@:2}"
}

parse() { # MODEL SET BEAM TREES
    module parse "$1" --beam "$3" <"$dataset/$2.source.raw.txt" >"$4"
}

score() { # SET PARSES ...
    module score "$data/$1.trees" "${@:2}"
}

choose_and_score() {
    local last best
    for last in 10 5 1; do # the number of averaged checkpoints
        nmt average-checkpoints "$run/training" --last "$last" --out "$run/model-$last"
        parse "$run/model-$last" valid 4 "$run/valid-$last.trees"
    done
    score valid "$run"/valid-{1,5,10}.trees >"$run/valid.json"
    best=$(python "$here/../results.py" "$run/valid.json")
    last=${best##*/valid-}
    last=${last%.trees}
    parse "$run/model-$last" test 21 "$run/test.trees"
    module right_branching <"$dataset/test.target.raw.txt" >"$run/right-branching.txt"
    score test "$run/right-branching.txt" "$run/test.trees" >"$run/test.json"
    python "$here/results.py" record "$run" --settings "$settings" --model "$run/model-$last"
}

# Function labels, such as SBJ in NP-SBJ, do not count in the score, so the model does not learn them.
mkdir -p "$corpus"
for file in "$data"/{train*,valid,test}.trees; do
    sed -E 's/\(([A-Z]+)[-=][^ ()]*/(\1/g' "$file" >"$corpus/$(basename "$file")"
done
if [ "$settings" = gum ]; then
    module phrases <"$corpus/train.trees" >"$corpus/train-phrases.trees"
fi
symbols=$(module linearise "$corpus"/train*.trees)
module linearise "$corpus"/{valid,test}.trees >/dev/null
training=(--train "$corpus/train.tsv")
for file in "$corpus"/train-*.tsv; do
    [ ! -f "$file" ] || training+=(--train "$file")
done
# shellcheck disable=SC2086 # PREPROCESS has options
nmt preprocess --config "$here/$settings/preprocess.toml" --source-lang words --target-lang trees --set "$symbols" \
    "${training[@]}" --valid "$corpus/valid.tsv" --test "$corpus/test.tsv" --out "$dataset" ${PREPROCESS:-}
if [ ! -f "$run/result.json" ]; then
    nmt train "$dataset" "${preset[@]}" --config "$here/$settings/train.toml" --seed "$seed" --out "$run/training" "$@"
    choose_and_score
fi
python "$here/results.py" show "$run"
