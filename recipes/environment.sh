# Sourced by every run.sh. Uses the environment that `make install` creates, unless another one with nmt is active.
if ! command -v nmt >/dev/null; then
    checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    PATH=$checkout/.venv/bin:$PATH
    if ! command -v nmt >/dev/null; then
        echo "Error: there is no nmt command. Run 'make install' in $checkout first, or activate an environment with nmt." >&2
        exit 1
    fi
fi
