# For run.sh, which sets its options and what it found: trains students, translates with them, and packs them.

train() { # SYSTEM [OPTIONS of nmt train ...]
    local to=$run/$1
    if [ ! -d "$to/model" ]; then
        # shellcheck disable=SC2086 # TRAIN holds options
        nmt train "$out/dataset" --config "$settings" --seed "$seed" --out "$to/training" "${@:2}" ${TRAIN:-}
        nmt average-checkpoints "$to/training" --select --out "$to/model" | tee "$to/selection.txt"
    fi
}

translated() { # NAME OUTPUT [OPTIONS of nmt translate ...]: a validation or test set of the dataset
    [ -f "$2" ] || nmt translate "${@:3}" --device cpu --input "$out/dataset/$1.source.raw.txt" --output "$2"
}

scored() { # NAME SYSTEM ...: the scores of translations, as JSON
    nmt score "${score[@]}" --metric bleu "${significance[@]}" --json --target-lang "$target" \
        --reference "$out/dataset/$1.target.raw.txt" "${@:2}"
}

# The length penalty of a search with several hypotheses, chosen on the validation set: for the teacher and for the
# student, since a fixed one would favour one of them.
choose_penalty() { # FOLDER MODEL ...
    local value best
    for value in 0.6 1 1.4; do
        translated "$valid" "$1/penalty-$value.$target" "${@:2}" --beam "$beam" --length-penalty "$value"
    done
    scored "$valid" "$1"/penalty-*."$target" >"$1/penalties.json"
    best=$(python "$here/../results.py" "$1/penalties.json")
    best=${best##*/penalty-}
    echo "${best%."$target"}" >"$1/penalty.txt"
}

system() { # FOLDER PRECISION BEAM MODEL ...: translates the test sets, and measures the speed
    local test of=$1 shortlist=false
    # The penalty is that of the same model in fp32. A beam of 1 needs none.
    case $1 in "$run/int8" | "$run/greedy" | "$run/shortlist") of=$run/student ;; esac
    [ "$1" != "$run/shortlist" ] || shortlist=true
    mkdir -p "$1"
    [ -f "$of/penalty.txt" ] || choose_penalty "$of" "${@:4}"
    for test in "${tests[@]}"; do
        translated "$test" "$1/$test.$target" "${@:4}" --precision "$2" --beam "$3" \
            --length-penalty "$(<"$of/penalty.txt")" --set search.shortlist=$shortlist
    done
    whole "$1/speed.json" python "$here/measure.py" "$out/speed.$source" "${@:4}" --precision "$2" --beam "$3" \
        --shortlist $shortlist
    systems+=("$1")
}

package() { # FORMAT: exports the student. Bergamot, if it is installed, translates the test sets too
    local test engine check=() precision=int8 to=$run/$1 model=$run/student/model
    case $1 in marian | huggingface) precision=fp32 ;; esac
    if [ "$1" = bergamot ]; then
        [ -f "$model/shortlist.safetensors" ] || nmt shortlist "$model" "$out/dataset"
        system "$run/shortlist" int8 1 "$model"
        engine=$(command -v bergamot || true)
        [ -z "$engine" ] || check=(--check --source "$out/speed.$source")
    fi
    if [ ! -d "$to" ]; then
        nmt export "$model" --format "$1" --precision $precision "${check[@]}" --out "$to"
    fi
    if [ -n "${engine-}" ]; then
        mkdir -p "$run/engine"
        for test in "${tests[@]}"; do
            whole "$run/engine/$test.$target" "$(dirname "$engine")/python" -I "$here/../../nmt_cli/interop/bergamot_engine.py" \
                "$to/config.intgemm8bitalpha.yml" <"$out/dataset/$test.source.raw.txt"
        done
        whole "$run/engine/speed.json" python "$here/measure.py" "$out/speed.$source" "$to" --engine bergamot
        systems+=("$run/engine")
    fi
}
