"""Run the commands of the guides and explanations, as written, on toy text and with very small models."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt_cli.demo import corpus as grammar
from tests.end_to_end.test_tutorials import DOCS, NMT, ROOT

PAGES = sorted(path for part in ("how-to", "explanation") for path in (DOCS / part).glob("*.md"))

COMMAND = r"^(nmt|echo|printf|cat|head|mkdir|args|for|python|recipes)\b"
NOT_HERE = r"^(pip|python3 -m venv|podman|systemctl|openssl|eval|nmt demo|nmt serve|\$ nmt)\b"
"""The beginnings of commands that other tests run, that need a network, or that change the machine."""

KILLED = "timeout --signal KILL 15 "

Run = Callable[[str, Path], None]


def blocks_of(page: Path) -> list[str]:
    """Return the code blocks of a page that run here."""
    blocks = re.findall(r"^```\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    here = (block for block in blocks if re.search(COMMAND, block, re.MULTILINE))
    return [block for block in here if not re.search(NOT_HERE, block, re.MULTILINE)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, nmt_script: Path) -> Run:
    """Return a function that runs lines of bash in a folder, with an `nmt` that makes small models."""
    bin_folder = tmp_path_factory.mktemp("small")
    (bin_folder / "nmt").write_text(NMT)
    (bin_folder / "nmt").chmod(0o755)
    path = f"{bin_folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {"PATH": path, "NMT": str(nmt_script), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

    def run(lines: str, folder: Path) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", lines],
            env={**os.environ, **variables},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{lines}\n{done.stderr}"

    return run


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Path:
    """Return a folder with the texts and models that the pages expect."""
    folder = tmp_path_factory.mktemp("prepared")
    names = "train sample bitext crawl valid test text mono data/de/train data/de/valid".split()
    for seed, name in enumerate(names):
        pairs = grammar.corpus("train", 300 if seed < 4 or name == "data/de/train" else 20, seed=seed)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        for language in ("en", "de"):
            text = "".join(f"{getattr(pair, language)}\n" for pair in pairs)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    run(
        """
        paste crawl.en crawl.de >web.tsv
        awk -F '\\t' '{ print $1 "\\t" $2 "\\t0." NR % 10 }' web.tsv >crawl.tsv
        cp -r data/de data/fr
        for part in train valid; do mv data/fr/$part.de data/fr/$part.fr; done
        cp test.de translations.de
        cp test.de base.de
        cp test.de big.de
        nmt preprocess --source-lang en --target-lang de --train train --valid valid --out dataset --quiet
        nmt train dataset --preset tiny --out run
        nmt average-checkpoints run --last 2 --out model
        """,
        folder,
    )
    (folder / "recipes").symlink_to(ROOT / "recipes")
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)], ids=lambda page: page.stem)
def test_the_commands_of_a_guide_run_as_written(page: Path, prepared: Path, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    shutil.copytree(prepared, folder, symlinks=True)
    blocks = [block.replace(KILLED, "") for block in blocks_of(page)]
    for name in ("dataset", "run"):
        if re.search(rf"--out {name}\s", "".join(blocks)):
            shutil.rmtree(folder / name)
    for block in blocks:
        run(block, folder)


def test_most_guides_have_commands_that_run_here() -> None:
    assert sum(bool(blocks_of(page)) for page in PAGES) >= 18
