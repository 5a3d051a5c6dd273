"""Tables and JSONL give the same columns as other parsers, and errors name the line."""

import csv
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.corpus.config import CorpusConfig
from nmt_cli.corpus.parallel import find
from nmt_cli.errors import UserError
from tests.checks import refusal
from tests.corpus.conftest import block

CELL = st.text(st.characters(exclude_characters="\t\n\r\0\ufeff", exclude_categories=["Cs"]), max_size=6)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def written(folder: Path, name: str, content: str) -> Path:
    (folder / name).write_text(content, encoding="utf-8", newline="")
    return folder / name


@given(st.lists(st.tuples(CELL, CELL, st.floats(allow_nan=False)), min_size=1, max_size=6))
def test_named_columns_of_a_table_are_the_same_as_in_the_csv_module(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, float]]
) -> None:
    content = "id\ttext_de\tscore\ttext_en\n" + "".join(
        f"{i}\t{target}\t{score}\t{source}\n" for i, (source, target, score) in enumerate(rows)
    )
    path = written(tmp_path_factory.mktemp("table"), "table.tsv", content)
    result = block(path, source_column="text_en", target_column="text_de", score_column="score")
    with path.open(encoding="utf-8", newline="\n") as file:
        read = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert [text.decode() for text in result.sources] == [row["text_en"] for row in read]
    assert [text.decode() for text in result.targets] == [row["text_de"] for row in read]
    assert result.scores == [float(row["score"]) for row in read] == [score for _, _, score in rows]


@pytest.mark.parametrize("outer", ["translation", ""])
@given(rows=st.lists(st.tuples(ANY_TEXT, ANY_TEXT), min_size=1, max_size=6))
def test_records_give_back_their_text_on_one_line(
    tmp_path_factory: pytest.TempPathFactory, outer: str, rows: list[tuple[str, str]]
) -> None:
    records = [{"en": source, "de": target} for source, target in rows]
    content = "".join(json.dumps({outer: item} if outer else item) + "\n" for item in records)
    result = block(written(tmp_path_factory.mktemp("records"), "a.jsonl", content))
    for texts, side in ((result.sources, 0), (result.targets, 1)):
        assert len(texts) == len(rows)
        for text, row in zip(texts, rows, strict=True):
            assert b"\n" not in text
            assert b"\r" not in text
            assert text.decode().replace(" ", "") == row[side].translate(dict.fromkeys(map(ord, "\r\n ")))
    assert result.scores == []


@pytest.mark.parametrize(
    ("names", "config"),
    [
        (("en", "de"), {}),
        (("eng", "de-AT"), {}),
        (("src", "tgt"), {}),
        (("source", "target"), {}),
        (("a.b", "c"), {"source_column": "a.b", "target_column": "c"}),
    ],
)
def test_fields_are_found_by_usual_names_or_by_settings(
    tmp_path: Path, names: tuple[str, str], config: dict[str, str]
) -> None:
    path = written(tmp_path, "a.jsonl", json.dumps({"id": 1, names[0]: "one", names[1]: "eins"}))
    result = block(path, **config)
    assert (result.sources, result.targets) == ([b"one"], [b"eins"])


def test_a_missing_text_is_empty_and_a_missing_score_is_nan(tmp_path: Path) -> None:
    content = '{"en": null, "de": "x", "s": null}\n{"en": "y", "de": "z", "s": 2}\n'
    result = block(written(tmp_path, "a.jsonl", content), score_column="s")
    assert result.sources == [b"", b"y"]
    assert math.isnan(result.scores[0])
    assert result.scores[1] == 2


def test_columns_may_be_chosen_by_number(tmp_path: Path) -> None:
    result = block(
        written(tmp_path, "a.tsv", "0.5\teins\tone\n0.1\tzwei\ttwo\n"), source_column="3", score_column="1"
    )
    assert (result.sources, result.targets, result.scores) == (
        [b"one", b"two"],
        [b"eins", b"zwei"],
        [0.5, 0.1],
    )


def test_invalid_unicode_is_left_to_the_rule_for_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"en": "\\ud800", "de": "\xff"}\n')
    result = block(path)
    for text in (*result.sources, *result.targets):
        with pytest.raises(UnicodeDecodeError):
            text.decode()


@pytest.mark.parametrize(
    ("name", "content", "config", "why"),
    [
        ("a.jsonl", '{"en": "x", "de": "y"}\n{"en": "x"\n', {}, "line 2 is not JSON"),
        ("a.jsonl", '{"en": "x", "de": "y"}\n\n', {}, "line 2 is not JSON"),
        ("a.json", '[{"en": "x", "de": "y"}]\n', {}, "line 1 is a list (jq"),
        ("a.jsonl", "3\n", {}, "line 1 is not an object"),
        ("a.jsonl", "[" * 100_000, {}, "line 1 is nested too deeply"),
        ("a.jsonl", '{"en": "x", "fr": "y"}\n', {}, "has no translation.de, de or target, but en, fr"),
        ("a.jsonl", '{"en": "x", "de": "y"}\n{"en": "x"}\n', {}, "line 2 has no de. It has en"),
        ("a.jsonl", '{"en": "x", "de": 3}\n', {}, "line 1: de is 3, not text"),
        ("a.jsonl", '{"en": "x", "de": "y", "s": "much"}\n', {"score_column": "s"}, "score is 'much'"),
        ("a.tsv", "en\tde\nx\ty\tz\n", {"source_column": "en"}, "line 2 has 3 columns, but line 1 has 2"),
        ("a.tsv", "en\tde\nx\ty\n", {"source_column": "fr"}, "line 1 has no fr. It has en, de"),
        ("a.tsv", "en\tde\nx\ty\n", {"target_column": "en"}, "and target. Set corpus.source_column"),
        ("a.tsv", "en\tde\nx\ty\n", {"source_column": "de"}, "and target. Set corpus.target_column"),
        ("a.tsv", "x\ty\n", {"score_column": "3"}, "line 1 has no 3. It has 1, 2"),
        ("a.tsv", "x\ty\tz\n", {"score_column": "3"}, "line 1: the score is 'z'"),
    ],
)
def test_errors_name_the_file_and_the_line(
    tmp_path: Path, name: str, content: str, config: dict[str, str], why: str
) -> None:
    path = written(tmp_path, name, content)
    message = refusal(block, path, **config)
    assert message.startswith(str(path))
    assert why in message


def test_locations_in_a_table_count_the_header(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", "en\tde\nx\ty\n")
    corpus = find(str(path), "en", "de", CorpusConfig(source_column="en"))
    assert corpus.location("source", 1) == f"{path} line 2"


def test_a_chosen_column_that_is_repeated_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", "en\tde\tx\tx\ten\na\tb\t\t\tc\n")
    with pytest.raises(UserError) as raised:
        block(path, source_column="en")
    assert str(raised.value) == f"{path} line 1 has 2 columns named en. Rename all but one."
    path = written(tmp_path, "b.tsv", "en\tde\tx\tx\na\tb\t\t\n")
    assert block(path, source_column="en").sources == [b"a"]  # other columns may be repeated
