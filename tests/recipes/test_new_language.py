"""The documented commands for a new language in a large model, with a random model of the shape of NLLB."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nmt_cli.text.tokenizers import load_tokenizers
from tests.interop.conftest import m2m100_folder, sentences

PAGE = Path(__file__).resolve().parents[2] / "nmt_cli/docs/tutorials/new-language.md"
SHORT = {
    "facebook/nllb-200-distilled-600M": "nllb",
    "kaz_Cyrl": "deu_Latn",  # the random model has no Kazakh
    ".kaz": ".de",
    "--max-steps 5000": "--max-steps 2",
    "--validate-every 250": "--validate-every 1 --quiet",
    "nmt serve": "nmt info",
    "--out dataset": "--out dataset --workers 1",
}


@pytest.mark.slow
def test_the_commands_of_the_page_add_a_language(tmp_path: Path, nmt_script: Path) -> None:
    m2m100_folder(tmp_path / "nllb", "nllb")
    cyrillic = {ord(letter): 0x430 + i for i, letter in enumerate("nprstäöeu")}
    for name, seed in (("mine", 1), ("old", 2), ("mine-valid", 3), ("old-valid", 4)):
        for lang, side in (("en", "source"), ("de", "target"), ("tyv", "target")):
            lines = [line.translate(cyrillic if lang == "tyv" else {}) for line in sentences(side, 150, seed)]
            (tmp_path / f"{name}.{lang}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    blocks = PAGE.read_text("utf-8").split("```")[1::2]
    commands = "".join(block for block in blocks if block.startswith("\n") and not block.startswith("\n--"))
    for documented, ours in SHORT.items():
        assert documented in commands
        commands = commands.replace(documented, ours)
    paths = {"PATH": f"{nmt_script.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        env={**os.environ, **paths}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    languages = load_tokenizers(tmp_path / "model" / "tokenizer").recipe.own_languages
    assert {*languages.targets} == {"eng_Latn", "deu_Latn", "tyv_Cyrl"}
    assert (tmp_path / "huggingface" / "sentencepiece.bpe.model").is_file()
    table = [line for line in done.stderr.splitlines() if "unknown pieces, mine.tyv" in line]
    assert table and table[0].split()[-2] == "0.00%"


@pytest.mark.slow
def test_the_recipe_runs(recipe: Callable[..., CompletedProcess[str]], tmp_path: Path) -> None:
    sizes = {"TRAIN": "700", "TEST": "5", "OLD": "2", "NEW": "2", "ALONE": "2"}
    done = recipe("new-language", tmp_path / "out", **sizes)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("BLEU (sacrebleu, detokenised, 13a)") == 4
