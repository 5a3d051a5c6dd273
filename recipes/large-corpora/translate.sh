#!/usr/bin/env bash
# Translate one share of the chunks of split.sh. Chunks that are already translated are skipped.
# translate.sh MODEL CHUNKS N/M [OPTIONS of nmt translate ...]: every M-th chunk, from the N-th on
set -euo pipefail
model=$1 chunks=$2 share=$3
shift 3

number=0
for chunk in "$chunks"/in.*; do
    out=$chunks/out.${chunk##*.}
    number=$((number + 1))
    if [ $((number % ${share#*/})) -eq $((${share%/*} % ${share#*/})) ] && ! [ -e "$out" ]; then
        nmt translate "$model" --quiet --input "$chunk" --output "$out" "$@"  # the file appears when it is whole
    fi
done
