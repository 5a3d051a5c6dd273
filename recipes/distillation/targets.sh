# For run.sh, which sets its options, $here, $source, $target and $sources: makes the training text of the student.

fail() { # MESSAGE
    echo "Error: $1" >&2
    exit 1
}

same() { # FILE ARGUMENTS: fails if an earlier command left other arguments in FILE
    if [ -f "$1" ] && ! diff "$1" - <<<"$2" >&2; then
        fail "$1 differs (<) from this command (>). Repeat the earlier command, delete ${1%/*}, or choose another \
folder with -o."
    fi
    echo "$2" >"$1"
}

whole() { # FILE COMMAND ...: the output of a command, in a file that appears when it is complete
    [ -e "$1" ] || { "${@:2}" >"$1.unfinished" && mv "$1.unfinished" "$1"; }
}

plain() { # FILE: its text
    case $1 in
        *.gz) gzip -dc "$1" ;;
        *.bz2) bzip2 -dc "$1" ;;
        *.xz) xz -dc "$1" ;;
        *.zst) zstd -dc "$1" ;;
        *) cat "$1" ;;
    esac
}

aligned() { # FILE SOURCES: fails unless the file has a line for each of the sources
    local expected found
    expected=$(awk 'END { print NR }' "$2") found=$(awk 'END { print NR }' "$1")
    [ "$expected" = "$found" ] || fail "$1 has $found lines, but $2 has $expected."
}

repeated() { # FILE: each line as often as the student learns from its translations
    awk -v times="$learnt" '{ for (n = 0; n < times; n++) print }' "$1"
}

chunks() { # FILE CHUNKS: splits a text with a line for each training line
    aligned "$1" "$out/train.$source"
    "$here/../large-corpora/split.sh" "$1" "$2" "$chunk_lines"
}

choose_targets() { # FORM TRANSLATIONS: some of the translations in TRANSLATIONS.00000 and so on for each source line
    local chunk number reference=()
    mkdir -p "$out/chosen" "$out/scores" "$out/sources"
    for chunk in "$out"/chunks/in.*; do
        number=${chunk##*.}
        [ ! -d "$out/references" ] || reference=(--reference "$out/references/in.$number")
        whole "$out/chosen/$number" python "$here/choose.py" best "$chunk" "$2.$number" --form "$1" \
            --number "$learnt" "${reference[@]}"
        whole "$out/sources/$number" repeated "$chunk"
        if [ -n "$backward" ]; then
            whole "$out/scores/$number" nmt score --model "$backward" --source "$out/chosen/$number" \
                "$out/sources/$number" --quiet
        fi
    done
    whole "$out/chosen.$target" cat "$out"/chosen/?????
    whole "$out/distilled.$source" cat "$out"/sources/?????
}

# Write OUT/distilled.SOURCE and OUT/distilled.TARGET, with the same number of pairs for each line of OUT/train.SOURCE.
# Dropped pairs have an empty line.
distil() { # TEACHER ...
    whole "$out/train.$source" plain "${sources[0]}"
    chunks "$out/train.$source" "$out/chunks"
    if [ ${#targets[@]} -eq 1 ]; then
        whole "$out/train.$target" plain "${targets[0]}"
        chunks "$out/train.$target" "$out/references"
    fi
    if [ -f "$1" ]; then
        whole "$out/teacher.tsv" plain "$1"
        chunks "$out/teacher.tsv" "$out/tables"
        choose_targets tsv "$out/tables/in"
    else
        # shellcheck disable=SC2086 # TRANSLATE holds options
        "$here/../large-corpora/translate.sh" "$1" "$out/chunks" 1/1 "${@:2}" --beam "$candidates" \
            --n-best "$candidates" ${TRANSLATE:-}
        choose_targets "$([ "$candidates" -eq 1 ] && echo tsv || echo n-best)" "$out/chunks/out"
    fi
    if [ -n "$backward" ]; then
        whole "$out/scores.txt" cat "$out"/scores/?????
        whole "$out/distilled.$target" python "$here/choose.py" drop "$out/distilled.$source" "$out/chosen.$target" \
            "$out/scores.txt" --percent "$worst"
    else
        whole "$out/distilled.$target" cat "$out/chosen.$target"
    fi
    aligned "$out/distilled.$target" "$out/distilled.$source"
}
