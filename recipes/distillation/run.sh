#!/usr/bin/env bash
# Train a small, fast student of a teacher: run.sh [OPTIONS] STUDENT SOURCE TARGET TEACHER ...
# STUDENT is a settings file here, such as ssru-6-1 or tok/tiny, or a path. SOURCE and TARGET are languages. TEACHER
# is a model, several models (an ensemble), or a .tsv file with translations of each training line. Run the same
# command again to resume. Options:
#   -d DATA      folder with train*.SOURCE, train*.TARGET, valid* and test*. Default: $NMT_DATA/multi30k/tok
#   -o OUT       folder to write. Default: run/ beside this script
#   -s SEED      seed of the students. Default: 1
#   -n N         number of the teacher's translations to choose from, and its beam. Default: 8
#   -m M         number of them that the student learns from, another one in each epoch. Default: 4
#   -k BEAM      beam of the translations that are scored. Default: 5
#   -b BACKWARD  model from TARGET to SOURCE, which scores the teacher's pairs
#   -w PERCENT   share of the teacher's pairs to drop, those with the worst scores. Default: 5
#   -c LINES     lines of a chunk. The teacher's finished chunks are kept. Default: 100000
#   -p FORMAT    package to make of the student: bergamot, argos or another format of nmt export. May be repeated
#   -a           train the same student without a teacher too, to see what the teacher was worth
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../environment.sh"
data=${NMT_DATA:+$NMT_DATA/multi30k/tok} out=$here/run seed=1 candidates=8 learnt=4 beam=5 backward= worst=5 chunk_lines=100000
packages=() alone=
while getopts d:o:s:n:m:k:b:w:c:p:a option; do
    case $option in
        d) data=$OPTARG ;;
        o) out=$OPTARG ;;
        s) seed=$OPTARG ;;
        n) candidates=$OPTARG ;;
        m) learnt=$OPTARG ;;
        k) beam=$OPTARG ;;
        b) backward=$OPTARG ;;
        w) worst=$OPTARG ;;
        c) chunk_lines=$OPTARG ;;
        p) packages+=("$OPTARG") ;;
        a) alone=yes ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
student=${1-} settings=$here/${1-}.toml
[ -f "$settings" ] || { settings=$student student=$(basename "$student" .toml); }
if [ $# -lt 4 ] || [ -z "$data" ] || [ ! -f "$settings" ]; then
    sed -n '2,16s/^# //p' "$0" >&2
    echo "STUDENT may be: $(cd "$here" && echo {,tok/}*.toml | sed 's/\.toml//g; s/ tok.score//')" >&2
    exit 2
fi
source=$2 target=$3
shift 3
run=$out/${student//\//-}-$seed score=()
[ ! -f "$(dirname "$settings")/score.toml" ] || score=(--config "$(dirname "$settings")/score.toml")
source "$here/targets.sh"
source "$here/systems.sh"

shopt -s nullglob # a file may be compressed
sources=("$data"/train*."$source"{,.gz,.bz2,.xz,.zst})
targets=("$data"/train*."$target"{,.gz,.bz2,.xz,.zst})
[ ${#sources[@]} -eq 1 ] || fail "$data has ${#sources[@]} files train*.$source. The recipe needs one."
[ ${#targets[@]} -le 1 ] || fail "$data has ${#targets[@]} files train*.$target. The recipe needs one, or none."
sets=() tests=() valid=
for file in "$data"/{valid,test}*."$source"{,.gz,.bz2,.xz,.zst}; do
    prefix=${file%".$source"*}
    case ${prefix##*/} in
        valid*) sets+=(--valid "$prefix") valid=${valid:-${prefix##*/}} ;;
        test*) sets+=(--test "$prefix") tests+=("${prefix##*/}") ;;
    esac
done
[ -n "$valid" ] || fail "$data has no file valid*.$source. The recipe needs one or more."
[ ${#tests[@]} -gt 0 ] || fail "$data has no file test*.$source. The recipe needs one or more."
[[ $worst =~ ^[0-9]+(\.[0-9]+)?$ ]] || fail "-w is '$worst'. Give a percentage, such as 5."
[[ $learnt =~ ^[1-9][0-9]*$ ]] || fail "-m is '$learnt'. Give a number of translations, such as 4."
[ -z "$alone" ] || [ ${#targets[@]} -eq 1 ] || fail "-a needs $data/train*.$target to train without a teacher."
[ ! -f "$1" ] || [ $# -eq 1 ] || fail "$1 is a table of translations. Leave out ${*:2}."
tables=() reuse=()
if [ -f "$1" ]; then
    tables=("$1") candidates=$(plain "$1" | awk -F'\t' 'NF > most { most = NF } END { print most + 0 }')
else
    [ -n "${PREPROCESS:-}" ] || reuse=(--reuse-tokenizer "$1")
fi
[ "$learnt" -le "$candidates" ] || learnt=$candidates

mkdir -p "$run"
same "$out/arguments.txt" "languages: $source-$target
candidates: $candidates
translations to learn from: $learnt
beam: $beam
backward model: ${backward:+$backward, drops $worst %}
options: ${TRANSLATE-}
$(printf 'teacher: %s\n' "$@")
text: $(cat "${sources[@]}" "${targets[@]}" "${tables[@]}" | cksum)"
same "$run/arguments.txt" "options: ${PREPROCESS:-} ${TRAIN-}
settings: $(cksum <"$settings")"
distil "$@"

# One dataset for the student and the same student without a teacher. Its words are aligned, for guided alignment and a
# shortlist.
corpus() { # NAME SOURCES TARGETS
    printf '[[corpus]]\nname = "%s"\npath = "%s"\n\n' "$1" "$2:$3"
}
{
    [ ${#targets[@]} -eq 0 ] || corpus original "$out/train.$source" "$out/train.$target"
    corpus distilled "$out/distilled.$source" "$out/distilled.$target"
} >"$out/corpora.toml"
# shellcheck disable=SC2086 # PREPROCESS holds options
nmt preprocess --config "$out/corpora.toml" --source-lang "$source" --target-lang "$target" "${sets[@]}" \
    --set corpus.align=true --out "$out/dataset" "${reuse[@]}" ${PREPROCESS:-}
whole "$out/speed.$source" awk 'NR <= 1000' "$out"/dataset/test*.source.raw.txt

# Each of these adds the folder of its translations to systems.
systems=() significance=()
if [ -n "$alone" ]; then
    train alone --set 'mixing.weights={original=1}'
    system "$run/alone" fp32 "$beam" "$run/alone/model"
    significance=(--significance randomization)
fi
# An original pair comes as often as a pair of the teacher.
train student --set "mixing.weights={${targets:+original=1, }distilled=1}"
system "$run/student" fp32 "$beam" "$run/student/model"
system "$run/int8" int8 "$beam" "$run/student/model"
system "$run/greedy" int8 1 "$run/student/model"
[ -f "$1" ] || system "$out/teacher" fp32 "$beam" "$@"
for format in "${packages[@]}"; do
    package "$format"
done
# Another command may have made other packages, and its scores have no others.
if [ "$(cat "$run/systems.txt" 2>/dev/null)" != "${systems[*]}" ]; then
    rm -f "$run"/test*.json "$run/result.json" "$run/report.md"
    echo "${systems[*]}" >"$run/systems.txt"
fi
for test in "${tests[@]}"; do
    whole "$run/$test.json" scored "$test" "${systems[@]/%//$test.$target}"
done
[ -f "$run/result.json" ] ||
    python "$here/results.py" record "$out" "$run" --student "$student" --languages "$source-$target"
whole "$run/report.md" python "$here/results.py" show "$run"
cat "$run/report.md"
echo "
The report is $run/report.md. Next:
    nmt serve $run/student/model"
for format in "${packages[@]}"; do
    echo "    $run/$format is the package for $format"
done
