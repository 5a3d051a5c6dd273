"""Fixtures for the tests of scoring: texts with unusual lines, and the sacrebleu command."""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

Texts = dict[str, Path]

ODD = [
    "",
    "Er sagte: „Ja“, “no”, ‚so‘ … und ging .",
    "Die U-Bahn-Linie 5 – 3,5 km – kostet 1.000 €!",
    "a\u2028b\x0bc\x85d\u00a0e\tf",
    "Tom & Jerry <tag> \"x\" | [y] &amp; 's l'eau",
    "全角，文字。テスト",
    "One more.  ",
    "x",
]


def _sentences(count: int) -> list[str]:
    chosen = random.Random(count)
    words = ["".join(chosen.choices("abcdefgäß", k=chosen.randint(1, 5))) for _ in range(60)]
    lines = [
        " ".join(chosen.choices(words, k=chosen.randint(1, 12))).capitalize() + "." for _ in range(count)
    ]
    return [*lines, *ODD]


def damaged(lines: Sequence[str], seed: int) -> list[str]:
    """Return the lines with some words missing, the same words for the same `seed`."""
    chosen = random.Random(seed)
    return [" ".join(word for word in line.split(" ") if chosen.random() > 0.15) for line in lines]


def lines(path: Path) -> list[str]:
    return [line.rstrip() for line in path.read_text(encoding="utf-8").removesuffix("\n").split("\n")]


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    """Write ref and other (references), one and two (systems). The last line of two has no line feed."""
    folder = tmp_path_factory.mktemp("texts")
    reference = _sentences(40)
    contents = {
        "ref": reference,
        "other": damaged(reference, 1),
        "one": damaged(reference, 2),
        "two": damaged(damaged(reference, 3), 4),
    }
    for name, text in contents.items():
        (folder / name).write_bytes(("\n".join(text) + ("\n" if name != "two" else "")).encode())
    return {name: folder / name for name in contents}


@pytest.fixture(scope="session")
def sacrebleu() -> Callable[..., str]:
    """Return a function that runs `sacrebleu` and returns its output, with twelve decimals."""

    def run(*arguments: object) -> str:
        command = [sys.executable, "-m", "sacrebleu", *map(str, arguments), "-w", "12", "-q", "-nc"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    return run


@pytest.fixture(scope="session")
def sacrebleu_score(sacrebleu: Callable[..., str]) -> Callable[..., tuple[float, str]]:
    """Return a function that runs `sacrebleu` for a system and a metric. It returns score and signature."""

    def run(*arguments: object) -> tuple[float, str]:
        result = json.loads(sacrebleu(*arguments, "-f", "json"))
        return result["score"], result["signature"]

    return run
