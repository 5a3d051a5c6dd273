"""Run the commands of the README and of the tutorials, as written, on toy text and with very small models."""

import re
from pathlib import Path

import pytest

from tests.end_to_end.pages import DOCS, ROOT, blocks_of, run, write_pairs
from tests.interop.conftest import marian_folder

NOT_HERE = r"pip |make |nmt (demo|serve)\b|curl "
"""The commands that other tests run, or that need a network."""

SHORTER = {"corpus.valid_size=1000": "corpus.valid_size=20", "corpus.test_size=1000": "corpus.test_size=20"}
"""Parts of commands that depend on the size of the text."""


def commands_of(page: Path) -> list[str]:
    """Return the commands of the code blocks of a page that begin with a command, without `NOT_HERE`."""
    lines = [
        line
        for block in blocks_of(page)
        if re.match(rf"nmt |echo |paste |{NOT_HERE}", block)
        for line in block.replace("\\\n", " ").splitlines()
    ]
    return [line for line in lines if not re.match(NOT_HERE, line)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the texts that the pages expect."""
    names = "train valid test corpus mine old mine-valid mine-test".split()
    write_pairs(tmp_path, {name: 300 if name in ("train", "corpus") else 20 for name in names})
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
    replaced = SHORTER | {"Helsinki-NLP/opus-mt-en-de": "opus-mt-en-de"}
    commands = commands_of(page)
    assert len(commands) >= 6
    for command in commands:
        for text, shorter in replaced.items():
            command = command.replace(text, shorter)
        run(command, folder, nmt_script)
