#!/usr/bin/env bash
# Bitext and synthetic pairs of Multi30k, alone and together: run.sh [-d DATA] [-o OUT] [-s SEED] [UPDATES]
# A third of the pairs is bitext. The English of the other pairs gets noise, like poor back-translation.
# Run the same command again to resume.
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
updates=${1:-210} test=test_2016_flickr

mkdir -p "$out"
for lang in en de; do
    awk 'NR % 3 == 1' "$data/train.$lang" >"$out/bitext.$lang"
done
awk 'NR % 3 != 1' "$data/train.en" | python "$here/noise.py" >"$out/synthetic.en"
awk 'NR % 3 != 1' "$data/train.de" >"$out/synthetic.de"

cat "$here/preprocess.toml" - >"$out/corpora.toml" <<END
[[corpus]]
name = "bitext"
path = "$out/bitext"

[[corpus]]
name = "synthetic"
path = "$out/synthetic"
tag = "<BT>"
filters = { max_ratio = 3 }
END
# shellcheck disable=SC2086 # PREPROCESS holds options
nmt preprocess --config "$out/corpora.toml" --source-lang en --target-lang de --out "$out/dataset" ${PREPROCESS:-}

# Both models have the same settings, except for the mixture.
cp "$here/train.toml" "$out/together.toml"
(cat "$here/train.toml" && printf '\n[mixing]\nweights = { bitext = 1 }\n') >"$out/alone.toml"
for system in alone together; do
    nmt train "$out/dataset" --config "$out/$system.toml" --seed "$seed" --max-steps "$updates" --out "$out/$system"
    nmt translate "$out/$system" --input "$data/$test.en" --output "$out/$system.de"
done
nmt score --metric bleu --significance randomization --reference "$data/$test.de" \
    "$out/alone.de" "$out/together.de" | tee "$out/scores.txt"
