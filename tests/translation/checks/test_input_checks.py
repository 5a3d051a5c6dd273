"""Warnings about unsuitable input."""

import gzip
from typing import get_args

import pytest

from nmt_cli.text.config import Kind, TextConfig, TokenizerConfig
from nmt_cli.text.tokenizers import Recipe, learn_tokenizers
from nmt_cli.text.vocabulary import Numbering, Vocabulary
from nmt_cli.translation.checks.input_checks import OddInput

TRAINED = Numbering.new((), ["▁the", "@", "&", "ap", "▁quote"]).vocabulary
UNKNOWN = TRAINED.unknown
KNOWN = UNKNOWN + 1


def odd_input() -> OddInput:
    return OddInput("sentencepiece", TRAINED)


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("the lad@@ der is blue", '"@@"'),
        ("▁the ▁lad der ▁is ▁blue", "U+2581"),
        ("the man &apos;s ladder", '"&apos;"'),
        ("he said &quot; no &quot;", '"&apos;"'),
        ("this &amp; that", '"&apos;"'),
        ("&#91; 1 &#93;", '"&apos;"'),
    ],
)
def test_tokenised_text_causes_one_warning(text: str, sign: str) -> None:
    odd = odd_input()
    assert odd.warning(6, "the ladder is blue", [KNOWN] * 4) is None
    warning = odd.warning(1007, text, [KNOWN] * 4)
    assert warning is not None
    assert f"line 1,007 contains {sign}" in warning
    assert odd.warning(1008, text, [KNOWN] * 4) is None
    assert odd.warning(1009, "the lad@@ der and ▁that &amp; this", [KNOWN] * 4) is None


@pytest.mark.parametrize(
    "text",
    ["mail me@@home", "@@ -1,4 +1,4 @@ def", "R&D; this & that;", "&apos without an end", "&nbsp;", ""],
)
def test_plain_text_causes_no_warning(text: str) -> None:
    assert odd_input().warning(1, text, [KNOWN]) is None


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("the ladder".encode("utf-16"), "looks like UTF-16. Convert it to UTF-8 first"),
        (b"PK\x03\x04a", "looks like a zip archive, such as .docx. Save it as text or HTML"),
        (gzip.compress(b"the ladder\n"), "looks compressed. Decompress it first (gzip -dc)"),
    ],
    ids=["UTF-16", "zip", "gzip"],
)
def test_binary_input_causes_one_warning(first: bytes, message: str) -> None:
    odd = odd_input()
    warning = odd.warning(1, odd.text(1, first), [KNOWN])
    assert warning is not None and message in warning
    assert odd.warning(2, odd.text(2, first), [KNOWN]) is None
    later = odd_input()
    assert later.warning(2, later.text(2, first), [KNOWN]) is None


JOINERS = "the lad@@ der is bl@@ ue and the wal@@ ls are too"
BLANK_MARKS = "▁the ▁lad der ▁is ▁blue ▁and ▁the ▁walls"
ESCAPES = "the man &apos;s ladder &quot; blue &quot; isn &apos;t &amp; was"
ONE_ESCAPE = [
    f"the blue ladder {text} behind our old house" for text in ("&amp;", "1 &lt; 2", "&#91; 1 &#93;")
]
"""Lines of a text tokenised by Moses that has only one kind of escape."""

PLAIN = "the ladder is blue, mail me@home & quote; the apostle's words"


def learnt(kind: Kind, line: str) -> Vocabulary:
    """Return the vocabulary of a text in which every second line is `line`."""
    recipe = Recipe(kind, True, "en", "de", TextConfig(words="raw"))
    config = (
        TokenizerConfig(vocab_size=70, sentencepiece_model="bpe")
        if kind == "sentencepiece"
        else TokenizerConfig(kind=kind, vocab_size=106)
    )
    other = "and another line with quite different words in it, so that there is something to learn from"
    sample = [line, other] * 50
    return learn_tokenizers(recipe, config, {"source": sample, "target": []}).source.vocabulary


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        *[("sentencepiece", JOINERS), ("bpe", JOINERS), ("word", JOINERS)],
        *[("bpe", BLANK_MARKS), ("char", BLANK_MARKS), ("word", BLANK_MARKS)],
        *[("sentencepiece", ESCAPES), ("bpe", ESCAPES), ("word", ESCAPES), ("char", ESCAPES)],
        *[("bpe", escape) for escape in ONE_ESCAPE],
        *[("word", escape) for escape in ONE_ESCAPE],
        *[("sentencepiece", escape) for escape in ONE_ESCAPE],
    ],
)
def test_a_model_trained_on_tokenised_text_accepts_it(kind: Kind, line: str) -> None:
    assert OddInput(kind, learnt(kind, line)).warning(1, line, [KNOWN]) is None


def test_a_model_that_escapes_its_input_itself_does_not_accept_escaped_text() -> None:
    odd = OddInput("bpe", learnt("bpe", ESCAPES), escapes=True)
    assert odd.warning(1, ESCAPES, [KNOWN]) is not None


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("line", [JOINERS, BLANK_MARKS, ESCAPES], ids=["joiners", "blank marks", "escapes"])
def test_a_model_trained_on_plain_text_does_not_accept_tokenised_text(kind: Kind, line: str) -> None:
    assert OddInput(kind, learnt(kind, PLAIN)).warning(1, line, [KNOWN]) is not None


def test_many_unknown_tokens_cause_one_warning_with_the_first_line() -> None:
    odd = odd_input()
    lines = [(1, 0), (2, 0), (3, 2), (4, 18), (5, 19), (6, 20), (7, 20)]
    warnings = [odd.warning(number, "x", [KNOWN] * (50 - n) + [UNKNOWN] * n) for number, n in lines]
    assert [warning is not None for warning in warnings] == [False] * 4 + [True] + [False] * 2
    assert str(warnings[4]).startswith(
        "16% of the input up to line 5 is unknown to the model, from line 3 on"
    )


@pytest.mark.parametrize(
    ("lines", "warnings"),
    [
        ([[UNKNOWN] * 20, [UNKNOWN]], [False, True]),
        ([[UNKNOWN] * 100 + [KNOWN] * 900], [False]),
        ([[UNKNOWN] * 101 + [KNOWN] * 899], [True]),
        ([[KNOWN]] * 1000 + [[UNKNOWN] * 10_000], [False] * 1001),
    ],
    ids=["few at the start", "a tenth", "more than a tenth", "after the first thousand lines"],
)
def test_over_a_tenth_of_unknown_tokens_in_the_first_lines_cause_a_warning(
    lines: list[list[int]], warnings: list[bool]
) -> None:
    odd = odd_input()
    assert [odd.warning(i, "x", ids) is not None for i, ids in enumerate(lines, start=1)] == warnings


def test_invalid_utf8_is_replaced_and_counted() -> None:
    odd = odd_input()
    assert odd.text(1, "für".encode()) == "für"
    assert odd.report() is None
    assert odd.text(2, b"f\xfcr") == "f\ufffdr"
    assert odd.report() == "line 2: bytes that are not UTF-8 became U+FFFD"
    for number in range(3, 10):
        odd.text(number, b"\xc3")
    assert odd.report() == "lines 2, 3, 4, 5, 6 and 3 more: bytes that are not UTF-8 became U+FFFD"
