#!/usr/bin/env bash
# An entry of the speed record: run.sh [-d DATA] [-o OUT] ENTRY. Trains and scores its seeds with recipes/multi30k, keeps
# results and logs, and writes the table. The same command resumes a stopped run. entries.toml has the entries.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../environment.sh"
options=() out=$here/run
while getopts d:o: option; do
    case $option in
        d) options+=(-d "$OPTARG") ;;
        o) out=$OPTARG ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ $# -ne 1 ]; then
    sed -n '2,3s/^# //p' "$0" >&2
    exit 2
fi
read -r settings updates seeds < <(python "$here/records.py" entry "$1")
for seed in $seeds; do
    "$here/../multi30k/run.sh" "${options[@]}" -o "$out" -s "$seed" "$settings" de "$updates"
    run=$out/${settings/\//-}-en-de-$seed
    python "$here/../multi30k/results.py" keep "$run"
    cp "$run/training/log.jsonl" "$here/logs/$1-$seed.jsonl"
    python "$here/records.py" table
done
