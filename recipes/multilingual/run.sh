#!/usr/bin/env bash
# English to German and to French on Multi30k, in one model and in two: run.sh [-d DATA] [-o OUT] [-s SEED] [UPDATES]
# There is a fifth as much French as German. Run the same command again to resume.
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
    sed -n '2,3s/^# //p' "$0" >&2
    exit 2
fi
updates=${1:-240} test=test_2016_flickr

train() { # NAME SETTING...
    local name=$1
    shift
    nmt train "$out/$name/dataset" --config "$here/train.toml" --seed "$seed" --max-steps "$updates" "$@" \
        --out "$out/$name/training"
}

mkdir -p "$out"
awk 'NR % 5 == 1' "$data/train.en" >"$out/few.en"
awk 'NR % 5 == 1' "$data/train.fr" >"$out/few.fr"

# Both directions in one dataset, with a tag before each source line. Temperature sampling raises the share of French.
cat "$here/preprocess.toml" - >"$out/corpora.toml" <<END
[[corpus]]
name = "en-de"
path = "$data/train.en:$data/train.de"
tag = "<2de>"

[[corpus]]
name = "en-fr"
path = "$out/few.en:$out/few.fr"
tag = "<2fr>"
END
# shellcheck disable=SC2086 # PREPROCESS holds options
nmt preprocess --config "$out/corpora.toml" --source-lang en --target-lang mul --out "$out/both/dataset" ${PREPROCESS:-}
train both --set mixing.temperature=5

# Each direction alone, with the same vocabulary and number of updates.
nmt preprocess --reuse-tokenizer "$out/both/dataset" --source-lang en --target-lang mul \
    --train "$data/train.en:$data/train.de" --out "$out/de/dataset"
nmt preprocess --reuse-tokenizer "$out/both/dataset" --source-lang en --target-lang mul \
    --train "$out/few.en:$out/few.fr" --out "$out/fr/dataset"
for lang in de fr; do
    train "$lang"
    nmt translate "$out/$lang/training" --input "$data/$test.en" --output "$out/$lang/alone.$lang"
    sed "s/^/<2$lang> /" "$data/$test.en" >"$out/$test-$lang.en"
    nmt translate "$out/both/training" --input "$out/$test-$lang.en" --output "$out/both/both.$lang"
    nmt score --metric bleu --significance randomization --reference "$data/$test.$lang" \
        "$out/$lang/alone.$lang" "$out/both/both.$lang"
done | tee "$out/scores.txt"
