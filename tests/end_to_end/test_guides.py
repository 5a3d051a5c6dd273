"""Run the commands of the guides and explanations, as written, on toy text and with very small models."""

import re
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.pages import DOCS, ROOT, blocks_of, run, write_pairs

PAGES = sorted(path for part in ("how-to", "explanation") for path in (DOCS / part).glob("*.md"))

COMMAND = r"^(nmt|echo|printf|cat|head|mkdir|args|for|python|recipes)\b"
NOT_HERE = (
    r"^(git clone|pip|python3 -m venv|podman|systemctl|openssl|hf auth|eval|nmt demo|nmt serve|berg/bin"
    r"|nmt import facebook|\$ nmt|.*wmt22|.*filter\.scorer)\b"
)
"""The beginnings of commands that other tests run, that need a network, or that change the machine."""

KILLED = "timeout --signal KILL 15 "


def blocks_here(page: Path) -> list[str]:
    """Return the code blocks of a page that run here."""
    here = (block for block in blocks_of(page) if re.search(COMMAND, block, re.MULTILINE))
    return [block for block in here if not re.search(NOT_HERE, block, re.MULTILINE)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, nmt_script: Path) -> Path:
    """Return a folder with the texts and models that the pages expect."""
    folder = tmp_path_factory.mktemp("prepared")
    names = "train sample bitext crawl valid test text mono data/de/train data/de/valid".split()
    large = ("train", "sample", "bitext", "crawl", "data/de/train")
    write_pairs(folder, {name: 300 if name in large else 20 for name in names})
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
        cat train.en train.de | subword-nmt learn-bpe --symbols 100 >codes
        mkdir bpe
        for file in train.en train.de valid.en valid.de test.en test.de; do
            subword-nmt apply-bpe --codes codes <$file >bpe/$file
        done
        printf 'type: transformer\\nenc-depth: 1\\ndim-emb: 64\\ntransformer-heads: 2\\n' >student.yml
        printf 'learn-rate: 0.001\\nvalid-freq: 2\\nmini-batch-fit: true\\n' >train.yml
        printf 'stages: [train]\\nmodifiers:\\n- UpperCase: 0.07\\n' >opustrainer.yml
        mkdir -p iwslt14.tokenized.de-en/tmp
        cp codes iwslt14.tokenized.de-en/code
        for part in train valid test; do cp $part.en $part.de iwslt14.tokenized.de-en/tmp; done
        mkdir -p demo/corpus raw
        cp test.de raw/test.de
        cp -r model demo/model
        cp test.en test.de demo/corpus
        """,
        folder,
        nmt_script,
    )
    (folder / "recipes").symlink_to(ROOT / "recipes")
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_here(page)], ids=lambda page: page.stem)
def test_the_commands_of_a_guide_run_as_written(
    page: Path, prepared: Path, nmt_script: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(prepared, folder, symlinks=True)
    blocks = [block.replace(KILLED, "") for block in blocks_here(page)]
    for name in ("dataset", "run"):
        if re.search(rf"--out {name}\s", "".join(blocks)):
            shutil.rmtree(folder / name)
    for block in blocks:
        run(block, folder, nmt_script)


def test_most_guides_have_commands_that_run_here() -> None:
    assert sum(bool(blocks_here(page)) for page in PAGES) >= 18
