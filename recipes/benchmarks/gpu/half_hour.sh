#!/usr/bin/env bash
# Run everything that needs a GPU, in three calls of at most ten minutes each. The machine needs no internet.
#
# First, with internet, in the root of a checkout. This makes .gpu/ with wheels and data, 49 MB:
#     recipes/benchmarks/gpu/half_hour.sh prepare /path/to/multi30k
# Then on the machine with the GPU, in a copy of the checkout with .gpu/. OUT names the folder for results:
#     recipes/benchmarks/gpu/half_hour.sh a     correctness, and the speed of attention
#     recipes/benchmarks/gpu/half_hour.sh b     whole training steps
#     recipes/benchmarks/gpu/half_hour.sh c     nmt train and nmt translate, beside CTranslate2
# At last, in the first checkout, with the results:
#     recipes/benchmarks/gpu/half_hour.sh keep FOLDER
# Every part has its own time limit, so a part that hangs does not stop the others.
set -uo pipefail
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
here=$PWD/.gpu
bench=recipes.benchmarks

prepare() { # MULTI30K
    local get=(python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp)
    for tag in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014 manylinux1; do get+=(--platform "${tag}_x86_64"); done
    mkdir -p .gpu/wheels .gpu/ct2 .gpu/multi30k
    grep -qx '/.gpu/' .git/info/exclude || echo '/.gpu/' >> .git/info/exclude
    "${get[@]}" -d .gpu/wheels sacremoses subword-nmt mock backports.zstd 'sentencepiece>=0.2.3' || exit 1
    "${get[@]}" -d .gpu/ct2 ctranslate2 || exit 1
    cp "$1"/{train,valid,test_2016_flickr,test_2017_flickr,test_2017_mscoco}.{en,de} .gpu/multi30k/ || exit 1
    git rev-parse HEAD > .gpu/revision
    du -sm .gpu
}

keep() { # FOLDER
    local to
    to=recipes/benchmarks/gpu/$(date +%F)
    mkdir -p "$to" && cp "$1"/* "$to"/ && python3 -m $bench.gpu.report "$to"
    echo "now show $to/report.md in recipes/benchmarks/gpu/README.md, and commit both"
}

setup() { # CALL
    export OUT=${OUT:-/tmp/out} && mkdir -p "$OUT" /tmp/site
    if [ -d "$here/wheels" ]; then
        python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site "$here"/wheels/*.whl
    fi
    export PYTHONPATH=/tmp/site:$PWD NMT_DATA=${NMT_DATA:-$here} TORCHINDUCTOR_CACHE_DIR=/tmp/inductor TRITON_CACHE_DIR=/tmp/triton
    began=$SECONDS
    echo "revision $(cat "$here/revision" 2>/dev/null || git rev-parse HEAD), $(date -u +%FT%TZ), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader)" | tee "$OUT/$1.log"
}

part() { # NAME SECONDS COMMAND...: never longer than what is left of the call, of which 20 s are kept
    local name=$1 limit=$2 left
    left=$((${LIMIT:-580} - (SECONDS - began) - 20)) && shift 2
    [ "$left" -lt 10 ] && echo "## $name: no time left" | tee -a "$OUT/$call.log" && return
    [ "$limit" -gt "$left" ] && limit=$left
    echo "## $name, at most $limit s" | tee -a "$OUT/$call.log"
    timeout -k 5 "$limit" "$@" 2>&1 | tee -a "$OUT/$call.log"
    echo "## $name: status ${PIPESTATUS[0]}, $((SECONDS - began)) s so far" | tee -a "$OUT/$call.log"
}

pytest() { # WORKERS ARGUMENTS: each worker compiles its own kernels; another torch's warnings are no failures
    python3 -m pytest -q -n "$1" --dist load -p no:cacheprovider -W default --maxfail=25 "${@:2}"
}
export -f pytest

tests() { # NAME SECONDS WORKERS ARGUMENTS: in the background, with its own time limit. Ends with a verdict
    local log=/tmp/tests-$1.log verdict
    timeout -k 5 "$2" bash -c 'pytest "$@"' _ "${@:3}" > "$log" 2>&1
    case $? in
        0) verdict=passed ;;
        124 | 137) verdict="NOT FINISHED in $2 s" ;;
        *) verdict=FAILED ;;
    esac
    [ "$verdict" = passed ] || tail -40 "$log"
    echo "## tests of $1: $verdict: $(tail -1 "$log")"
}
export -f tests

all_tests() { # in parallel: a group that hangs or crashes the device's context does not stop the others
    tests checks 200 2 tests/model/kernels/test_kernel_trials.py &
    tests attention 220 6 tests/attention/test_attention_on_a_gpu.py tests/attention/test_gpu_attention.py tests/attention/test_dropout_masks.py &
    tests loss 150 2 tests/loss &
    tests pointwise 150 2 tests/model/pointwise &
    tests model 150 2 -m gpu tests/model tests/data &
    tests others 150 2 -m gpu tests/decoding tests/runtime tests/training tests/translation &
    wait
}
export -f all_tests

call_a() {
    part ceilings 60 python3 -m $bench.gpu.ceilings "$OUT/ceilings.json"
    part "all tests" 240 bash -c all_tests
    part "attention" 240 bash -c "for w in middle short long; do python3 -m $bench.attention wmt alike-\$w base | tee -a '$OUT/attention.md'; done"
}

call_b() {
    part check 140 python3 -m $bench.gpu.step "$OUT/check.json" base check
    part "base, compiled" 150 python3 -m $bench.gpu.step "$OUT/base-compiled.json" base compiled
    part "base, eager" 40 python3 -m $bench.gpu.step "$OUT/base-eager.json" base eager
    part "base, an eighth" 60 python3 -m $bench.gpu.step "$OUT/base-eighth.json" base compiled --tokens 3125
    part "big, compiled" 150 python3 -m $bench.gpu.step "$OUT/big-compiled.json" big compiled
}

call_c() {
    local cublas run=/tmp/run text=$NMT_DATA/multi30k
    part preprocess 60 python3 -m nmt_cli preprocess --source-lang en --target-lang de --train "$text/train" --valid "$text/valid" \
        --test "$text/test_2016_flickr" --tokenizer sentencepiece --vocab-size 10000 --workers 12 --out /tmp/dataset
    part "nmt train" 200 python3 -m nmt_cli train /tmp/dataset --out $run --preset vaswani2017-base --max-steps 1500 --batch-tokens 8192 \
        --set schedule.warmup=500 --set schedule.factor=0.6 --set model.residual_dropout=0.3 --validate-every 1500 --save-every 1500
    cp $run/log.jsonl "$OUT/train-log.jsonl"
    part "nmt translate" 60 bash -c "time python3 -m nmt_cli translate $run --device cuda < $text/test_2016_flickr.en > $OUT/test_2016.de && python3 -m nmt_cli score --reference $text/test_2016_flickr.de $OUT/test_2016.de"
    part "search" 110 python3 -m $bench.gpu.search "$OUT/search-nmt.json" $run nmt
    # CTranslate2 loads cuBLAS 12 by name. The functions that it uses are the same in cuBLAS 13.
    python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/ct2 "$here"/ct2/*.whl
    cublas=$(python3 -c 'import glob, sys; print(next(iter(p for d in sys.path for p in glob.glob(d + "/nvidia/*/lib/libcublas.so.1[23]"))))')
    mkdir -p /tmp/shim && ln -sf "$cublas" /tmp/shim/libcublas.so.12 && ln -sf "${cublas/libcublas/libcublasLt}" /tmp/shim/libcublasLt.so.12
    part "search, CTranslate2" 110 env PYTHONPATH="/tmp/ct2:$PYTHONPATH" LD_LIBRARY_PATH="/tmp/shim:$(dirname "$cublas"):${LD_LIBRARY_PATH:-}" \
        python3 -m $bench.gpu.search "$OUT/search-ctranslate2.json" $run ctranslate2
    part loss 60 bash -c "python3 -m $bench.loss speed | tee '$OUT/loss.md'"
    part "attention: random, and big" 200 bash -c "for w in 'random base' 'alike-middle big'; do python3 -m $bench.attention wmt \$w | tee -a '$OUT/attention.md'; done"
}

call=${1:-}
case $call in
    prepare) prepare "${2:?the folder of Multi30k}" ;;
    keep) keep "${2:?the folder of results}" ;;
    a | b | c) setup "$call" && "call_$call" && python3 -m $bench.gpu.report "$OUT" ;;
    *) sed -n '2,13p' "$0" && exit 2 ;;
esac
