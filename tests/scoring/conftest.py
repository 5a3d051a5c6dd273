"""What the tests of this room share: texts with everything odd in them, and sacrebleu's own command."""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

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
    """The lines with some words lost."""
    chosen = random.Random(seed)
    return [" ".join(word for word in line.split(" ") if chosen.random() > 0.15) for line in lines]


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files named ref, other (references), one and two (systems); the last line of two has no end."""
    folder = tmp_path_factory.mktemp("texts")
    lines = _sentences(40)
    contents = {
        "ref": lines,
        "other": damaged(lines, 1),
        "one": damaged(lines, 2),
        "two": damaged(damaged(lines, 3), 4),
    }
    for name, text in contents.items():
        (folder / name).write_bytes(("\n".join(text) + ("\n" if name != "two" else "")).encode())
    return {name: folder / name for name in contents}


@pytest.fixture(scope="session")
def sacrebleu() -> Callable[..., str]:
    """What `sacrebleu` prints for these arguments, twelve digits after the point."""

    def run(*arguments: object) -> str:
        command = [sys.executable, "-m", "sacrebleu", *map(str, arguments), "-w", "12", "-q", "-nc"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    return run


@pytest.fixture(scope="session")
def sacrebleu_score(sacrebleu: Callable[..., str]) -> Callable[..., tuple[float, str]]:
    """The score and the signature that `sacrebleu` gives for one system in one metric."""

    def run(*arguments: object) -> tuple[float, str]:
        found = json.loads(sacrebleu(*arguments, "-f", "json"))
        return found["score"], found["signature"]

    return run
