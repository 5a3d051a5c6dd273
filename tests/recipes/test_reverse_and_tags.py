"""Run the documented commands for the other direction and for many languages, as written."""

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nmt_cli.data.dataset import open_dataset
from nmt_cli.text.tokenizers import load_tokenizers

ROOT = Path(__file__).resolve().parents[2]
README, LANGUAGES = ROOT / "recipes" / "README.md", ROOT / "nmt_cli" / "docs" / "how-to" / "many-languages.md"
SMALL = """#!/bin/sh
case $1 in
train)
    set -- "$@" --set model.width=16 --set model.feed_forward=16 --set model.heads=2 --max-steps 1 \\
        --set model.encoder_layers=1 --set model.decoder_layers=1 --batch-tokens 500 --device cpu \\
        --validate-every 0 --quiet ;;
preprocess) set -- "$@" --workers 1 $PREPROCESS ;;
esac
exec $NMT "$@"
"""


def first_block(text: str) -> str:
    """Return the commands of the first code block."""
    block = re.search(r"```\n(.*?)```", text, re.DOTALL)
    assert block
    return block[1]


@pytest.fixture
def shell(tmp_path: Path, nmt_script: Path) -> Callable[[str, str], str]:
    """Runs commands in the test's folder, with an `nmt` that makes small models; returns what they print."""
    command = tmp_path / "bin" / "nmt"
    command.parent.mkdir()
    command.write_text(SMALL)
    command.chmod(0o755)

    def run(commands: str, preprocess: str) -> str:
        path = f"{command.parent}:{os.environ['PATH']}"
        variables = {"PATH": path, "PREPROCESS": preprocess, "NMT": str(nmt_script)}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            env={**os.environ, **variables, "OMP_NUM_THREADS": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def write(folder: Path, sides: Sequence[str], count: int) -> None:
    """`train` and `valid` of made-up lines, each side in words of its own."""
    folder.mkdir(parents=True)
    for part in ("train", "valid"):
        for side in sides:
            lines = (f"{part} {side} {n % 7} {side * 2} {n % 5}\n" for n in range(count))
            (folder / f"{part}.{side}").write_text("".join(lines), "utf-8")


def test_the_other_direction_takes_over_the_tokeniser(
    tmp_path: Path, shell: Callable[[str, str], str]
) -> None:
    write(tmp_path / "data", ("en", "de"), 40)
    there = "nmt preprocess --source-lang en --target-lang de --train data/train --out en-de/dataset"
    shell(there, "--vocab-size 24")
    section = README.read_text("utf-8").split("\n## The other direction\n")[1]
    shell(first_block(section), "")
    first, second = (tmp_path / name / "dataset" for name in ("en-de", "de-en"))
    assert (second / "train.source.txt").read_bytes() == (first / "train.target.txt").read_bytes()
    vocabularies = [
        load_tokenizers(folder / "tokenizer").source.vocabulary.entries for folder in (first, second)
    ]
    assert vocabularies[0] == vocabularies[1]


@pytest.mark.slow
def test_a_tag_before_each_line_says_into_which_language(
    tmp_path: Path, shell: Callable[[str, str], str]
) -> None:
    for lang in ("de", "fr"):
        write(tmp_path / "data" / lang, ("en", lang), 20)
    printed = shell(first_block(LANGUAGES.read_text("utf-8")), "--vocab-size 24")
    assert printed.count("\n") == 1
    entries = load_tokenizers(tmp_path / "tagged" / "dataset" / "tokenizer").source.vocabulary.entries
    source = open_dataset(tmp_path / "tagged" / "dataset").splits["train"].source
    first = [entries[source.tokens[source.offsets[n]]] for n in (0, 19, 20, 39)]
    assert first == ["<2de>", "<2de>", "<2fr>", "<2fr>"]
