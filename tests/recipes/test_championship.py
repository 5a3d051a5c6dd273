"""The comparison of engines: its table, its random models, and nmt against itself."""

import re
import sys
from pathlib import Path
from typing import Literal

import pytest

from nmt_cli.api import load
from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.model.config import ModelConfig
from recipes.benchmarks.championship import (
    ENTRIES,
    Measured,
    compared,
    exported,
    print_head,
    print_rows,
    started,
)
from recipes.benchmarks.championship_models import write_random

TEXT = ["abc def", "a b c", "xyz"]
CHARACTERS = str.encode
OURS = {"nmt": sys.executable, "ctranslate2": "", "marian": "", "bergamot": ""}


def rows(printed: str) -> list[list[str]]:
    """Return the cells of each row of a printed table."""
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in printed.splitlines()]


def test_a_row_compares_fastest_rounds_with_nmt_in_the_same_precision(
    capsys: pytest.CaptureFixture[str],
) -> None:
    by_name = {entry.name: entry for entry in ENTRIES}
    nmt = Measured(TEXT, [2.0, 4.0], [2.5, 2.0], [[0.1, 0.2, 0.3], [0.4, 0.1, 0.2]], [0.25, 0.5])
    marian = Measured(
        [*TEXT[:2], "z"], [6.0, 1.0], [7.0, 1.5], [[0.1, 0.1, 0.4], [0.4, 0.5, 0.4]], [0.5, 0.75]
    )
    print_rows({by_name["nmt fp32"]: nmt, by_name["Marian fp32"]: marian}, TEXT, 1, CHARACTERS)
    printed = {row[0]: row[1:] for row in rows(capsys.readouterr().out)}
    assert list(printed) == [entry.name for entry in ENTRIES]
    shared = ["1", "3", "2", "2.00", "1.00 x", "100.0", "200.0", "250.0", "1.00 x", "100%", "15"]
    assert printed["nmt fp32"] == shared
    assert printed["Marian fp32"] == [
        *("1", "6", "2", "1.50", "0.50 x", "100.0", "400.0", "500.0", "1.00 x", "67%", "13")
    ]
    assert printed["Bergamot int8"] == ["1", *["-"] * 10]


def test_nmt_runs_against_itself_and_others_have_reasons(
    made_models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made_models / "copies"
    exports, reasons = exported(read_model(path), path, tmp_path / "exports", OURS)
    assert reasons["Marian fp32"] == "not measured without --marian-python."
    assert {entry.name for entry in exports} | {*reasons} == {entry.name for entry in ENTRIES}
    with started(exports, OURS, beam=1, threads=1) as running:
        measured = compared(running, TEXT, singles=2, rounds=2)
    assert {entry.name: one.texts for entry, one in measured.items()} == {"nmt fp32": TEXT, "nmt int8": TEXT}
    print_head()
    print_rows(measured, TEXT, 1, CHARACTERS)
    head, _, first, *_ = rows(capsys.readouterr().out)
    assert len(head) == len(first)
    assert re.fullmatch(r"\d+\.\d", first[head.index("line, ms: fastest round")])


def test_an_engine_that_is_not_installed_has_a_reason(made_models: Path, tmp_path: Path) -> None:
    path = made_models / "copies"
    pythons = OURS | {"bergamot": sys.executable}
    _, reasons = exported(read_model(path), path, tmp_path, pythons)
    assert reasons["Bergamot int8"] == f"{sys.executable} does not have the package bergamot."


@pytest.mark.parametrize("history", ["attention", "ssru"])
def test_translations_of_random_models_are_as_long_as_the_mean_source(
    made_models: Path, tmp_path: Path, history: Literal["attention", "ssru"]
) -> None:
    config = ModelConfig(
        encoder_layers=1, decoder_layers=1, width=64, feed_forward=64, heads=2, decoder_history=history
    )
    lines = ["abcdefghij", "klmnopqr", "stuvwxyzabcd"] * 20
    write_random(tmp_path / "model", config, read_model(made_models / "copies").identity.tokenizers, lines)
    translations = load(tmp_path / "model", device="cpu", threads=1).translate(lines[:3])
    assert all(8 <= len(text) <= 12 for text in translations), translations
