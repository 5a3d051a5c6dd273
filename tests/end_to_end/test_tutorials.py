"""Run the commands of the README and of the tutorials, as written, on toy text and with very small models."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from nmt_cli.demo import corpus as grammar
from tests.interop.conftest import marian_folder

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "nmt_cli" / "docs"

NMT = """#!/bin/sh
command=$1
case "$command $*" in
preprocess*--reuse-tokenizer*) set -- "$@" --workers 1 ;;
preprocess*) set -- "$@" --workers 1 --vocab-size 120 ;;
train*--dry-run*) ;;
train*--init-from*) set -- "$@" --batch-tokens 300 --max-steps 5 --validate-every 5 --quiet ;;
train*) set -- "$@" --batch-tokens 300 --max-steps 5 --validate-every 5 --save-every 1 --device cpu --quiet \\
    --set model.width=16 --set model.feed_forward=16 --set model.heads=2 --set model.encoder_layers=1 \\
    --set model.decoder_layers=1 ;;
translate*) set -- "$@" --set search.max_length=20 ;;
esac
exec $NMT "$@"
"""
"""An `nmt` that makes small models and short translations."""

NOT_HERE = r"pip |make |nmt (demo|serve)\b|curl "
"""The commands that other tests run, or that need a network."""

SHORTER = {"corpus.valid_size=1000": "corpus.valid_size=20", "corpus.test_size=1000": "corpus.test_size=20"}
"""Parts of commands that depend on the size of the text."""


def commands_of(page: Path) -> list[str]:
    """Return the commands of the code blocks of a page that begin with a command, without `NOT_HERE`."""
    blocks = re.findall(r"^```\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    lines = [
        line
        for block in blocks
        if re.match(rf"nmt |echo |paste |{NOT_HERE}", block)
        for line in block.replace("\\\n", " ").splitlines()
    ]
    return [line for line in lines if not re.match(NOT_HERE, line)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the texts that the pages expect."""
    for seed, name in enumerate(
        ("train", "valid", "test", "corpus", "mine", "old", "mine-valid", "mine-test")
    ):
        pairs = grammar.corpus("train", 300 if name in ("train", "corpus") else 20, seed=seed)
        for language in ("en", "de"):
            text = "".join(f"{getattr(pair, language)}\n" for pair in pairs)
            (tmp_path / f"{name}.{language}").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", DOCS / "tutorials/your-own-text.md", DOCS / "tutorials/fine-tune.md"],
    ids=lambda page: page.stem,
)
def test_the_commands_of_a_page_run_as_written(page: Path, folder: Path, nmt_script: Path) -> None:
    marian_folder(folder / "opus-mt-en-de")
    tokenizer = folder / "opus-mt-en-de" / "tokenizer_config.json"
    tokenizer.write_text(tokenizer.read_text().replace('"fr"', '"de"'))
    (folder / "bin").mkdir()
    (folder / "bin" / "nmt").write_text(NMT)
    (folder / "bin" / "nmt").chmod(0o755)
    replaced = SHORTER | {"Helsinki-NLP/opus-mt-en-de": "opus-mt-en-de"}
    commands = commands_of(page)
    assert len(commands) >= 6
    environment = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "NMT": str(nmt_script),
        "OMP_NUM_THREADS": "1",
    }
    for command in commands:
        for text, shorter in replaced.items():
            command = command.replace(text, shorter)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            env={**os.environ, **environment},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        # `head` ends before its input does, which a pipe reports as SIGPIPE.
        assert done.returncode in (0, 128 + signal.SIGPIPE), f"{command}\n{done.stderr}"
