#!/usr/bin/env bash
# The trees of GUM that `run.sh gum` reads: corpus.sh FOLDER. Writes train.trees, valid.trees and test.trees, one tree per
# line, and compares their checksums. GUM is at the commit in downloads.toml. Put its archive into FOLDER/archives, and
# nothing is downloaded. DOWNLOADS is another list of archives.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -ne 1 ]; then
    sed -n '2,4s/^# //p' "$0" >&2
    exit 2
fi
export LC_ALL=C # documents in the order of their names
python3 "$here/../../download.py" "${DOWNLOADS:-$here/downloads.toml}" --out "$1"
cd "$1"
for set in train valid test; do
    cat "$set"/*.ptb | perl -0777 -pe 's/\s+/ /g; s/ $//; s/ ?\(ROOT/\n(ROOT/g; s/^\n//; $_ .= "\n"' >"$set.unfinished"
    mv "$set.unfinished" "$set.trees"
done
sha256sum --check "${CHECKSUMS:-$here/checksums.txt}"
