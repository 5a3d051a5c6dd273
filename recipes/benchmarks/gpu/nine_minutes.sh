#!/usr/bin/env bash
# Measure what only a GPU can tell, in a call of 540 s and one of 200 s. The machine needs no internet.
#
# First, with internet, in the root of a checkout. This makes .gpu/, 30 MB: wheels, a dataset and kernels. The
# kernels are of use only if this Triton is that of the other machine, so KERNELS_PYTHON may name another Python.
#     recipes/benchmarks/gpu/nine_minutes.sh prepare
# Then on the machine with the GPU, in a copy of the checkout. .gpu/ is ignored by git, so copy it too. OUT names
# the folder for the results, which are in one file, results.tar, written again after each part:
#     recipes/benchmarks/gpu/nine_minutes.sh 1     nmt train twice, steps, attention, limits, tests: 540 s
#     recipes/benchmarks/gpu/nine_minutes.sh 2     big, nmt translate, search: 200 s
# At last, in the first checkout:
#     recipes/benchmarks/gpu/nine_minutes.sh keep results.tar [results.tar of the second call]
# The most valuable part comes first. Every part has its own time limit, so a part that hangs does not stop the
# others, and none is longer than what is left of the call.
set -uo pipefail
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
here=$PWD/.gpu
bench=recipes.benchmarks
python=${PYTHON:-python3}
results=${RESULTS:-/tmp/results}
run=${RUN:-/tmp/run}

prepare() {
    local get=("$python" -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp)
    for tag in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014 manylinux1; do get+=(--platform "${tag}_x86_64"); done
    mkdir -p .gpu/wheels
    echo '*' > .gpu/.gitignore
    "${get[@]}" -d .gpu/wheels sacremoses subword-nmt mock backports.zstd 'sentencepiece>=0.2.3' || exit 1
    "$python" -m $bench.gpu.dataset .gpu || exit 1
    TRITON_CACHE_DIR=$here/triton "${KERNELS_PYTHON:-$python}" -m $bench.gpu.stubs
    git rev-parse HEAD > .gpu/revision
    du -sm .gpu
}

keep() { # RESULTS.tar ...
    local to
    to=recipes/benchmarks/gpu/$(date +%F)
    mkdir -p "$to" && for each in "$@"; do tar -xf "$each" -C "$to" || exit 1; done
    "$python" -m $bench.gpu.report "$to"
    echo "now show $to/report.md in recipes/benchmarks/gpu/README.md, and commit both"
}

setup() { # CALL SECONDS
    began=$SECONDS limit=${LIMIT:-$2}
    export OUT=${OUT:-/tmp/out} results run
    mkdir -p "$OUT" "$results"
    # Both calls and all parts share one cache of each compiler.
    export TORCHINDUCTOR_CACHE_DIR=/tmp/inductor TRITON_CACHE_DIR=/tmp/triton PYTHONPATH=/tmp/site:$PWD
    [ -d /tmp/triton ] || cp -r "$here/triton" /tmp/triton 2> /dev/null
    log=$results/call-$1.log
    echo "revision $(cat "$here/revision" 2>/dev/null || git rev-parse HEAD), $(date -u +%FT%TZ), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader)" | tee "$log"
}

pack() { # The file is whole at any time.
    tar -cf "$OUT/.results" -C "$results" . && mv "$OUT/.results" "$OUT/results.tar"
}

part() { # NAME SECONDS COMMAND...: never longer than what is left of the call, of which 20 s are kept
    local name=$1 most=$2 left status
    left=$((limit - (SECONDS - began) - 20)) && shift 2
    [ "$left" -lt 5 ] && echo "## $name: no time left" | tee -a "$log" && return
    [ "$most" -gt "$left" ] && most=$left
    echo "## $name, at most $most s" | tee -a "$log"
    timeout -k 5 "$most" "$@" 2>&1 | tee -a "$log"
    status=${PIPESTATUS[0]}
    [ "$status" = 124 ] || [ "$status" = 137 ] && status="NOT FINISHED in $most s"
    echo "## $name: status $status, $((SECONDS - began)) s so far" | tee -a "$log"
    pack
}

wheels() {
    "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site "$here"/wheels/*.whl
}

train() { # STEPS
    TORCH_LOGS=recompiles "$python" -m nmt_cli train "$here/dataset" --out "$run" --preset vaswani2017-base --max-steps "$1" \
        --batch-tokens 25000 --validate-every 200 --save-every 200
    local status=$?
    cp "$run/log.jsonl" "$results/train-log.jsonl"
    cp "${XDG_CACHE_HOME:-$HOME/.cache}"/nmt/kernels-*.json "$results/" 2> /dev/null
    return $status
}

translated() {
    head -500 "$here/text/valid.en" > /tmp/sources
    time "$python" -m nmt_cli translate "$run" --device cuda < /tmp/sources > "$results/translated.de"
}

tests() {
    # Without the other dtypes, which compile kernels of their own.
    "$python" -m pytest -q -n 12 --dist load -p no:cacheprovider -W default --maxfail=25 -m gpu -k "bfloat16 or not torch" \
        tests/attention/test_attention_on_a_gpu.py tests/loss tests/model/pointwise
}
export -f wheels train translated tests
export here python

call_1() {
    part wheels 20 bash -c wheels
    part "nmt train" 170 bash -c "train 400"
    part "nmt train, resumed with warm caches" 55 bash -c "train 420"
    part check 60 "$python" -m $bench.gpu.step "$results/check.json" base check
    part "base, compiled" 45 "$python" -m $bench.gpu.step "$results/base-compiled.json" base compiled
    part "base, an eighth" 35 "$python" -m $bench.gpu.step "$results/base-eighth.json" base compiled --tokens 3125
    part attention 60 bash -c "for w in middle long; do $python -m $bench.attention wmt alike-\$w base | tee -a '$results/attention.md'; done"
    part ceilings 20 "$python" -m $bench.gpu.ceilings "$results/ceilings.json"
    part "tests of kernels" 55 bash -c tests
}

call_2() {
    part wheels 20 bash -c wheels
    part "big, compiled" 90 "$python" -m $bench.gpu.step "$results/big-compiled.json" big compiled
    part "nmt translate" 30 bash -c translated
    part search 40 "$python" -m $bench.gpu.search "$results/search-nmt.json" "$run" nmt --lines "$here/text/valid.en"
}

case ${1:-} in
    prepare) prepare ;;
    keep) keep "${@:2}" ;;
    1) setup 1 540 && call_1 && "$python" -m $bench.gpu.report "$results" && pack ;;
    2) setup 2 200 && call_2 && "$python" -m $bench.gpu.report "$results" && pack ;;
    *) sed -n '2,14p' "$0" && exit 2 ;;
esac
