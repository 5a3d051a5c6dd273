"""Marian's YAML is read as by a complete YAML parser."""

from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.errors import UserError
from nmt_cli.interop.importers.marian_yaml import quoted, settings, vocabulary

yaml: Any = import_module("yaml")  # which has no types

SETTINGS = """# Marian configuration file generated at 2020
bert-train-type-embeddings: true
dim-vocabs:
  - 32000
  - 32000
enc-cell: gru
learn-rate: 0.0003
transformer-tied-layers:
  []
transformer-preprocess: ""
valid-metrics:
  - "ce-mean-words"
  - bleu
label: 'it''s'
version: v1.9.0 abc
"""


def test_settings_are_what_a_reader_of_all_yaml_finds() -> None:
    assert settings(SETTINGS, "model.yml") == yaml.safe_load(SETTINGS)


@given(pieces=st.lists(st.text(st.characters(codec="utf-8"), min_size=1), unique=True, max_size=5))
def test_pieces_of_any_characters_come_back(pieces: list[str]) -> None:
    text = "".join(f"{quoted(piece)}: {i}\n" for i, piece in enumerate(pieces))
    assert vocabulary(text, "vocab.yml") == {piece: i for i, piece in enumerate(pieces)}


@pytest.mark.parametrize(
    "known",
    [
        {"</s>": 0, "a": 1, ":": 2, "\u2581the": 3},
        {"it's": 0, '"': 1, "\\": 2, "# x": 3},
        {"x" * 200: 0, "-": 1},
    ],
    ids=["marks", "quotes", "long"],
)
def test_a_vocabulary_as_others_write_it_is_read(known: dict[str, int]) -> None:
    text = yaml.safe_dump(known, allow_unicode=True, width=10_000)
    assert vocabulary(text, "vocab.yml") == known


@pytest.mark.parametrize("line", ["no id", "a: b", ": ", '"a": ²', f"a: {1:0<5000}"])
def test_what_is_no_vocabulary_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(UserError, match="line 2"):
        vocabulary(f"a: 0\n{line}\n", "vocab.yml")
    with pytest.raises(UserError, match=r"line 1: .* is not a setting"):
        settings("nothing at all", "model.yml")
