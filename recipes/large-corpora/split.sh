#!/usr/bin/env bash
# Split a text into chunks that are translated separately.
# split.sh TEXT CHUNKS [LINES]: CHUNKS/in.00000, CHUNKS/in.00001, ... with 100,000 lines each
set -euo pipefail
text=$1 chunks=$2 lines=${3:-100000}

[ -e "$chunks/complete" ] && exit
rm -rf "$chunks"
mkdir -p "$chunks"
split -d -a 5 -l "$lines" "$text" "$chunks/in."
touch "$chunks/complete"
