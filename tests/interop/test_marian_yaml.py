"""Marian's YAML is read as by a complete YAML parser."""

from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.errors import UserError
from nmt_cli.interop.marian_yaml import quoted, settings, vocabulary

yaml: Any = import_module("yaml")  # it has no types

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


def test_settings_are_those_of_a_complete_yaml_parser() -> None:
    assert settings(SETTINGS, "model.yml") == yaml.safe_load(SETTINGS)


@given(pieces=st.lists(st.text(st.characters(codec="utf-8"), min_size=1), unique=True, max_size=5))
def test_pieces_of_any_characters_come_back(pieces: list[str]) -> None:
    text = "".join(f"{quoted(piece)}: {i}\n" for i, piece in enumerate(pieces))
    assert vocabulary(text, "vocab.yml") == {piece: i for i, piece in enumerate(pieces)}


@pytest.mark.parametrize(
    "ids",
    [
        {"</s>": 0, "a": 1, ":": 2, "\u2581the": 3},
        {"it's": 0, '"': 1, "\\": 2, "# x": 3},
        {"x" * 200: 0, "-": 1},
    ],
    ids=["marks", "quotes", "long"],
)
def test_a_vocabulary_of_another_writer_is_read(ids: dict[str, int]) -> None:
    text = yaml.safe_dump(ids, allow_unicode=True, width=10_000)
    assert vocabulary(text, "vocab.yml") == ids


def test_every_way_to_write_a_key_is_read() -> None:
    text = '</s>: 0\n"\\x41\\u2581\\"": 1\n\'it\'\'s\': 2\n::: 3\n? "long"\n: 4\n\u2581a: 5\n"#": 6\n'
    pieces = ["</s>", 'A\u2581"', "it's", "::", "long", "\u2581a", "#"]
    assert vocabulary(text, "vocab.yml") == {piece: i for i, piece in enumerate(pieces)}


@pytest.mark.parametrize("line", ["no id", "a: b", ": ", '"a": ²', f"a: {1:0<5000}"])
def test_a_line_that_is_not_an_entry_or_setting_is_refused_by_number(line: str) -> None:
    with pytest.raises(UserError, match="line 2"):
        vocabulary(f"a: 0\n{line}\n", "vocab.yml")
    with pytest.raises(UserError, match=r"line 1: .* is not a setting"):
        settings("nothing at all", "model.yml")
