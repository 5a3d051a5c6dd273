"""Pages of the documentation, toy text for their commands, and an `nmt` that makes small models."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from nmt_cli.demo import corpus as grammar

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "nmt_cli" / "docs"

NMT = """#!/bin/sh
command=$1
case "$command $*" in
preprocess*--reuse-tokenizer*) set -- "$@" --workers 1 ;;
*byte_fallback=true*) set -- "$@" --workers 1 --vocab-size 400 ;;
preprocess*) set -- "$@" --workers 1 --vocab-size 120 ;;
train*--dry-run*) ;;
train*--init-from*) set -- "$@" --batch-tokens 300 --max-steps 5 --validate-every 5 --quiet ;;
train*) set -- "$@" --batch-tokens 300 --max-steps 5 --validate-every 5 --save-every 1 --device cpu --quiet \\
    --set model.width=16 --set model.feed_forward=16 --set model.heads=2 --set model.encoder_layers=1 \\
    --set model.decoder_layers=1 ;;
translate*) set -- "$@" --set search.max_length=20 ;;
export*bergamot*) set -- "$@" --precision fp32 ;;  # int8 needs 64 channels
esac
exec $NMT "$@"
"""
"""An `nmt` that makes small models and short translations."""


def blocks_of(page: Path) -> list[str]:
    """Return the code blocks of a page that have no language."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [code for language, code in blocks if not language]


def write_pairs(folder: Path, sizes: Mapping[str, int]) -> None:
    """Write FOLDER/NAME.en and .de with pairs of the demo grammar, by name and number of pairs."""
    for seed, (name, size) in enumerate(sizes.items()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pairs = grammar.corpus("train", size, seed=seed)
        for language in ("en", "de"):
            text = "".join(f"{getattr(pair, language)}\n" for pair in pairs)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


def run(lines: str, folder: Path, nmt_script: Path) -> None:
    """Run lines of bash in a folder, with an `nmt` that makes small models. All commands must succeed."""
    command = folder / "small-models" / "nmt"
    command.parent.mkdir(exist_ok=True)
    command.write_text(NMT)
    command.chmod(0o755)
    path = f"{command.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {"PATH": path, "NMT": str(nmt_script), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", lines],
        env={**os.environ, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    # `head` may end before its input does, which a pipe reports as SIGPIPE.
    pipe_closed = done.returncode == 128 + signal.SIGPIPE and "| head" in lines
    assert done.returncode == 0 or pipe_closed, f"{lines}\n{done.stderr}"
