#!/usr/bin/env bash
# Table 3 of the paper: run.sh [-d DATA] [-f FACTOR] [-n UPDATES] [-o OUT] [-s SEED] CORPUS [ROW ...]
# CORPUS is multi30k, multi30k-post or wmt14. A ROW is a table of rows.toml. The default is all rows except big. Trains each row,
# translates and scores the validation set. Run the same command again to resume.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../environment.sh"
data='' factor='' updates='' out=$here/run seed=1
while getopts d:f:n:o:s: option; do
    case $option in
        d) data=$OPTARG ;;
        f) factor=$OPTARG ;;
        n) updates=$OPTARG ;;
        o) out=$OPTARG ;;
        s) seed=$OPTARG ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
case ${1:-} in
    multi30k)
        data=${data:-${NMT_DATA:+$NMT_DATA/multi30k}} dataset=$out/multi30k valid=valid
        factor=${factor:-8} updates=${updates:-1500}
        ;;
    multi30k-post)
        data=${data:-${NMT_DATA:+$NMT_DATA/multi30k}} dataset=$out/multi30k valid=valid
        factor=${factor:-4} updates=${updates:-3000}
        ;;
    wmt14)
        data=${data:-$here/../wmt14-en-de/run/dataset-wmt14} dataset=$data valid=newstest2013
        factor=${factor:-1} updates=${updates:-100000}
        ;;
    *) data= ;;
esac
if [ -z "$data" ]; then
    sed -n '2,4s/^# //p' "$0" >&2
    echo "DATA is the folder of the text, \$NMT_DATA/multi30k, or the dataset that recipes/wmt14-en-de has made" >&2
    exit 2
fi
corpus=$1 rows=("${@:2}")
[ ${#rows[@]} -gt 0 ] || mapfile -t rows < <(python "$here/results.py" rows)
sweep=$out/$corpus-$factor
for row in "${rows[@]}"; do # a row that isn't there is told now, not at its turn
    python "$here/results.py" settings "$row" --factor "$factor" >/dev/null
done

train() { # OPTIONS; $settings are those of the row
    # shellcheck disable=SC2086 # the variable holds several words
    ${TRAIN:-nmt train} "$dataset" --preset vaswani2017-base --config "$here/$corpus.toml" $settings \
        --seed "$seed" --max-steps "$updates" --out "$run/training" "$@"
}

if [ "$corpus" != wmt14 ]; then
    # shellcheck disable=SC2086 # PREPROCESS holds options
    nmt preprocess --config "$here/preprocess.toml" --source-lang en --target-lang de \
        --train "$data/train" --valid "$data/valid" --out "$dataset" ${PREPROCESS:-}
fi
for row in "${rows[@]}"; do
    run=$sweep/$row-$seed stage=$sweep/$row-$seed/$updates
    settings=$(python "$here/results.py" settings "$row" --factor "$factor")
    if [ ! -f "$stage/result.json" ]; then
        mkdir -p "$stage"
        train
        train --dry-run >"$stage/plan.txt"
        nmt translate "$run/training/last" --beam 4 --length-penalty 0.6 \
            --input "$dataset/$valid.source.raw.txt" --output "$stage/$valid.de"
        nmt score --metric bleu --json --reference "$dataset/$valid.target.raw.txt" "$stage/$valid.de" \
            >"$stage/score.json"
        python "$here/results.py" record "$stage" --corpus "$corpus" --row "$row" --factor "$factor"
    fi
done
python "$here/results.py" show "$sweep"
