#!/usr/bin/env bash
# Train a small, fast student of a teacher: run.sh [OPTIONS] STUDENT SOURCE TARGET TEACHER ...
# STUDENT is a settings file here, such as ssru-6-1 or tok/tiny, or a path. SOURCE and TARGET are languages. TEACHER
# is a model, several models (an ensemble), or a .tsv file with translations of each training line. Run the same
# command again to resume. Options:
#   -d DATA      folder with train*.SOURCE, train*.TARGET, valid* and test*. Default: $NMT_DATA/multi30k/tok
#   -o OUT       folder to write. Default: run/ beside this script
#   -s SEED      seed of the students. Default: 1
#   -n N         number of the teacher's translations to choose from, and its beam. Default: 8
#   -k BEAM      beam of the translations that are scored. Default: 5
#   -b BACKWARD  model from TARGET to SOURCE, which scores the teacher's pairs
#   -w PERCENT   share of the teacher's pairs to drop, those with the worst scores. Default: 5
#   -c LINES     lines of a chunk. The teacher's finished chunks are kept. Default: 100000
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../environment.sh"
data=${NMT_DATA:+$NMT_DATA/multi30k/tok} out=$here/run seed=1 candidates=8 beam=5 backward= worst=5 chunk_lines=100000
while getopts d:o:s:n:k:b:w:c: option; do
    case $option in
        d) data=$OPTARG ;;
        o) out=$OPTARG ;;
        s) seed=$OPTARG ;;
        n) candidates=$OPTARG ;;
        k) beam=$OPTARG ;;
        b) backward=$OPTARG ;;
        w) worst=$OPTARG ;;
        c) chunk_lines=$OPTARG ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
student=${1-} settings=$here/${1-}.toml
[ -f "$settings" ] || { settings=$student student=$(basename "$student" .toml); }
if [ $# -lt 4 ] || [ -z "$data" ] || [ ! -f "$settings" ]; then
    sed -n '2,13s/^# //p' "$0" >&2
    echo "STUDENT may be: $(cd "$here" && echo {,tok/}*.toml | sed 's/\.toml//g; s/ tok.score//')" >&2
    exit 2
fi
source=$2 target=$3
shift 3
run=$out/${student//\//-}-$seed score=()
[ ! -f "$(dirname "$settings")/score.toml" ] || score=(--config "$(dirname "$settings")/score.toml")
source "$here/targets.sh"

shopt -s nullglob # a file may be compressed
sources=("$data"/train*."$source"{,.gz,.bz2,.xz,.zst})
targets=("$data"/train*."$target"{,.gz,.bz2,.xz,.zst})
[ ${#sources[@]} -eq 1 ] || fail "$data has ${#sources[@]} files train*.$source. The recipe needs one."
[ ${#targets[@]} -le 1 ] || fail "$data has ${#targets[@]} files train*.$target. The recipe needs one, or none."
sets=() tests=()
for file in "$data"/{valid,test}*."$source"{,.gz,.bz2,.xz,.zst}; do
    prefix=${file%".$source"*}
    case ${prefix##*/} in
        valid*) sets+=(--valid "$prefix") ;;
        test*) sets+=(--test "$prefix") tests+=("${prefix##*/}") ;;
    esac
done
[ ${#tests[@]} -gt 0 ] || fail "$data has no file test*.$source. The recipe needs one or more."
[[ $worst =~ ^[0-9]+(\.[0-9]+)?$ ]] || fail "-w is '$worst'. Give a percentage, such as 5."
[ ! -f "$1" ] || [ $# -eq 1 ] || fail "$1 is a table of translations. Leave out ${*:2}."
tables=() reuse=()
if [ -f "$1" ]; then
    tables=("$1")
elif [ -z "${PREPROCESS:-}" ]; then
    reuse=(--reuse-tokenizer "$1")
fi

train() { # SYSTEM [OPTIONS of nmt train ...]
    local to=$run/$1
    if [ ! -d "$to/model" ]; then
        # shellcheck disable=SC2086 # TRAIN holds options
        nmt train "$out/dataset" --config "$settings" --seed "$seed" --out "$to/training" "${@:2}" ${TRAIN:-}
        nmt average-checkpoints "$to/training" --select --out "$to/model" | tee "$to/selection.txt"
    fi
}

translate() { # FOLDER PRECISION BEAM MODEL ...: translates the test sets, and measures the speed
    local test
    mkdir -p "$1"
    for test in "${tests[@]}"; do
        if [ ! -f "$1/$test.$target" ]; then
            nmt translate "${@:4}" --device cpu --precision "$2" --beam "$3" \
                --input "$out/dataset/$test.source.raw.txt" --output "$1/$test.$target"
        fi
    done
    whole "$1/speed.json" python "$here/measure.py" "$out/speed.$source" "${@:4}" --precision "$2" --beam "$3"
    systems+=("$1")
}

mkdir -p "$run"
same "$out/arguments.txt" "languages: $source-$target
candidates: $candidates
beam: $beam
backward model: ${backward:+$backward, drops $worst %}
options: ${TRANSLATE-}
$(printf 'teacher: %s\n' "$@")
text: $(cat "${sources[@]}" "${targets[@]}" "${tables[@]}" | cksum)"
same "$run/arguments.txt" "options: ${PREPROCESS:-} ${TRAIN-}
settings: $(cksum <"$settings")"
distil "$@"

# One dataset for the student and the same student without a teacher.
corpus() { # NAME TARGETS
    printf '[[corpus]]\nname = "%s"\npath = "%s"\n\n' "$1" "$out/train.$source:$2"
}
{
    [ ${#targets[@]} -eq 0 ] || corpus original "$out/train.$target"
    corpus distilled "$out/distilled.$target"
} >"$out/corpora.toml"
# shellcheck disable=SC2086 # PREPROCESS holds options
nmt preprocess --config "$out/corpora.toml" --source-lang "$source" --target-lang "$target" "${sets[@]}" \
    --out "$out/dataset" "${reuse[@]}" ${PREPROCESS:-}
whole "$out/speed.$source" awk 'NR <= 1000' "$out"/dataset/test*.source.raw.txt

systems=() significance=()
if [ ${#targets[@]} -eq 1 ]; then
    train alone --set 'mixing.weights={original=1}'
    translate "$run/alone" fp32 "$beam" "$run/alone/model"
    significance=(--significance randomization)
fi
train student --set mixing.temperature=1 # by size, but batches are planned as for the student without a teacher
translate "$run/student" fp32 "$beam" "$run/student/model"
translate "$run/int8" int8 "$beam" "$run/student/model"
translate "$run/greedy" int8 1 "$run/student/model"
[ -f "$1" ] || translate "$out/teacher" fp32 "$beam" "$@"
for test in "${tests[@]}"; do
    whole "$run/$test.json" nmt score "${score[@]}" --metric bleu "${significance[@]}" --json --target-lang "$target" \
        --reference "$out/dataset/$test.target.raw.txt" "${systems[@]/%//$test.$target}"
done
[ -f "$run/result.json" ] ||
    python "$here/results.py" record "$out" "$run" --student "$student" --languages "$source-$target"
python "$here/results.py" show "$run"
