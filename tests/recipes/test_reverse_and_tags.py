"""The documented commands for the other direction and for many languages."""

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nmt_cli.checkpoints.finding import recipe_of
from nmt_cli.data.dataset import open_dataset
from nmt_cli.text.tokenizers import load_tokenizers

ROOT = Path(__file__).resolve().parents[2]
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


def commands_of(page: str, heading: str) -> str:
    """Return the first commands below a heading of a page."""
    section = (ROOT / page).read_text("utf-8").split(f"# {heading}\n")[1]
    block = re.search(r"```\n(.*?)```", section, re.DOTALL)
    assert block
    return block[1]


@pytest.fixture
def shell(tmp_path: Path, nmt_script: Path) -> Callable[[str, str], str]:
    """Return a function that runs commands with an `nmt` that makes small models, and returns their output.

    Its second parameter has additional options of `nmt preprocess`.
    """
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
    """Write the files `train` and `valid` for the languages `sides`, with `count` lines in train."""
    folder.mkdir(parents=True)
    for part in ("train", "valid"):
        for side in sides:
            lines = (f"{part} {side} {n % 7} {side * 2} {n % 5}\n" for n in range(count))
            (folder / f"{part}.{side}").write_text("".join(lines), "utf-8")


def test_the_other_direction_reuses_the_tokeniser(tmp_path: Path, shell: Callable[[str, str], str]) -> None:
    write(tmp_path / "data", ("en", "de"), 40)
    forward = "nmt preprocess --source-lang en --target-lang de --train data/train --out en-de/dataset"
    shell(forward, "--vocab-size 24")
    shell(commands_of("recipes/README.md", "The other direction"), "")
    first, second = (tmp_path / name / "dataset" for name in ("en-de", "de-en"))
    assert (second / "train.source.txt").read_bytes() == (first / "train.target.txt").read_bytes()
    vocabularies = [
        load_tokenizers(folder / "tokenizer").source.vocabulary.entries for folder in (first, second)
    ]
    assert vocabularies[0] == vocabularies[1]


@pytest.mark.slow
def test_a_tag_before_each_line_names_the_target_language(
    tmp_path: Path, shell: Callable[[str, str], str]
) -> None:
    for lang in ("de", "fr"):
        write(tmp_path / "data" / lang, ("en", lang), 20)
    page = "nmt_cli/docs/how-to/many-languages.md"
    printed = shell(commands_of(page, "Many languages in one model"), "--vocab-size 24")
    assert printed.count("\n") == 1
    assert recipe_of(tmp_path / "tagged" / "run").own_languages.directions == [("en", "de"), ("en", "fr")]
    entries = load_tokenizers(tmp_path / "tagged" / "dataset" / "tokenizer").source.vocabulary.entries
    source = open_dataset(tmp_path / "tagged" / "dataset").splits["train"].source
    first = [entries[source.tokens[source.offsets[n]]] for n in (0, 19, 20, 39)]
    assert first == ["<2de>", "<2de>", "<2fr>", "<2fr>"]
    shell(commands_of(page, "Many sources, one target"), "--vocab-size 24")
    both = load_tokenizers(tmp_path / "both" / "dataset" / "tokenizer").recipe
    assert both.own_languages.directions == [("de", "en"), ("fr", "en")]
