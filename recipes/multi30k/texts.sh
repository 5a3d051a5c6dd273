# For run.sh and steps.sh, which set $here, $data, $text and $language: finds texts, translates and scores them.

case $text in
    raw) folder=$data end= ;;
    tok) folder=$data/tok end=.lc.norm.tok ;;
esac
shopt -s nullglob # a file may be packed: valid.en or valid.en.gz

of() { # NAME LANGUAGE: its file
    local found=("$folder/$1$end.$2" "$folder/$1$end.$2".*)
    [ -e "${found[0]}" ] || found=("${found[@]:1}")
    echo "${found[0]-$folder/$1$end.$2}"
}

scored() { # NAME HYPOTHESES ...
    nmt score --config "$here/$text/score.toml" --metric bleu --json --reference "$(of "$1" "$language")" "${@:2}"
}

translated() { # NAME OUTPUT MODEL ...
    nmt translate "${@:3}" --beam "$beam" --length-penalty "$penalty" --input "$(of "$1" en)" --output "$2"
}

attempt() { # FOLDER MODEL ...: the validation set with $beam and $penalty
    translated valid "$1/valid-$beam-$penalty.$language" "${@:2}"
}

choose() { # FOLDER: sets $beam and $penalty to what was best on the validation set
    local best
    scored valid "$1"/valid-5-*."$language" "$1"/valid-[12]*."$language" >"$1/valid.json" # of equals, the first
    best=$(python "$here/../results.py" "$1/valid.json")
    best=${best##*/valid-}
    best=${best%."$language"}
    beam=${best%%-*} penalty=${best#*-}
}

# Choose a length penalty, then a beam. If $before is set, compare with the translations in that folder.
translate_and_score() { # FOLDER PENALTIES MODEL ...
    local to=$1 name
    rm -f "$to"/valid-*
    beam=5
    for penalty in $2; do
        attempt "$to" "${@:3}"
    done
    choose "$to"
    for beam in 12 24; do
        attempt "$to" "${@:3}"
    done
    choose "$to"
    for name in "$folder"/test_*"$end".en{,.*}; do
        name=${name##*/}
        name=${name%%"$end".en*}
        translated "$name" "$to/$name.$language" "${@:3}"
        scored "$name" ${before:+"$before/$name.$language"} "$to/$name.$language" \
            ${before:+--significance randomization} >"$to/$name.json"
    done
}
