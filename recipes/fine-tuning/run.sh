#!/usr/bin/env bash
# Fine-tune a model of another toolkit on your own text, and export it.
# run.sh SOURCE TEXT OLD VALID OUT [OPTIONS of nmt import ...]: SOURCE is an argument of
# nmt import. The others are prefixes of text: new text, text that the model was trained on, and a validation set.
# TRAIN names a settings file to use instead of train.toml.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../environment.sh"
source=$1 text=$2 old=$3 valid=$4 out=$5
shift 5
mkdir -p "$out"

arguments="$source $*"
if [ -d "$out/imported" ] && ! diff "$out/imported.txt" - <<<"$arguments" >&2; then
    echo "$out is of another model (<) than this command (>). Choose another OUT, or delete it." >&2
    exit 1
fi
[ -d "$out/imported" ] || nmt import "$source" --out "$out/imported" "$@"
echo "$arguments" >"$out/imported.txt"
languages=$(python -c 'import json, sys; print(*json.load(open(sys.argv[1]))["languages"].values())' "$out/imported/config.json")
read -r from to <<<"$languages"
nmt preprocess --source-lang "$from" --target-lang "$to" --train "$text" --train "$old" --valid "$valid" \
    --reuse-tokenizer "$out/imported" --out "$out/dataset" --overwrite
cat "$out/imported/train.toml" "${TRAIN:-$here/train.toml}" >"$out/train.toml"
nmt train "$out/dataset" --config "$out/train.toml" --init-from "$out/imported" --out "$out/training"
nmt average-checkpoints "$out/training" --select --out "$out/model"
rm -rf "$out/huggingface"
nmt export "$out/model" --format huggingface --out "$out/huggingface"
echo "Translate with it: nmt translate $out/model, or with transformers: $out/huggingface"
