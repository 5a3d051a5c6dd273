#!/usr/bin/env bash
# The text of Multi30k that run.sh and other recipes read: corpus.sh FOLDER. Compares the checksums of all files. The
# commit of the corpus is in downloads.toml. Put its archive into FOLDER/archives, and nothing is downloaded. DOWNLOADS
# is another list of archives.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -ne 1 ]; then
    sed -n '2,4s/^# //p' "$0" >&2
    exit 2
fi
python3 "$here/../download.py" "${DOWNLOADS:-$here/downloads.toml}" --out "$1"
cd "$1"
for file in compressed/*.gz; do
    name=$(basename "$file" .gz)
    gzip --decompress --stdout "$file" >"$name.unfinished"
    mv "$name.unfinished" "$name"
done
sha256sum --check --quiet "${CHECKSUMS:-$here/checksums.txt}"
