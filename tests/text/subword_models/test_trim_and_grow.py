"""Fitted SentencePiece models: sentencepiece itself is the oracle for how text is segmented."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
import sentencepiece

from nmt_cli.demo.corpus import corpus
from nmt_cli.errors import UserError
from nmt_cli.text.subword_models import trim_and_grow
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.trim_and_grow import grown, script_of, trimmed
from tests.text.conftest import spm_train

PAIRS = corpus("train", 1200, 7)
ENGLISH, GERMAN = [pair.en for pair in PAIRS], [pair.de for pair in PAIRS]
GREEK = [line.translate({97 + i: 0x3B1 + i for i in range(26)}).lower() for line in GERMAN]
KINDS: dict[str, dict[str, Any]] = {
    "bpe": {"model_type": "bpe"},
    "unigram": {},
    "bytes": {"byte_fallback": True},
    "nfkc": {"normalization_rule_name": "nmt_nfkc_cf", "model_type": "bpe"},
    "symbols": {"user_defined_symbols": ["house", "<2de>"], "control_symbols": ["<x>"]},
    "no space": {"add_dummy_prefix": False, "model_type": "bpe"},
    "suffix": {"treat_whitespace_as_suffix": True},
}


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest) -> Pieces:
    settings = {"vocab_size": 900, "character_coverage": 1.0, **KINDS[request.param]}
    return Pieces(spm_train([*ENGLISH, *GERMAN, *GREEK], **settings))


def segmented(pieces: Pieces, lines: Sequence[str]) -> list[list[str]]:
    """Return the pieces of lines by a new processor of sentencepiece."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=pieces.files()["model"])
    return [processor.id_to_piece(ids) for ids in processor.encode(list(lines))]


def test_a_trimmed_model_segments_its_text_as_before(model: Pieces) -> None:
    small = trimmed(model, ENGLISH, (), ())
    assert len(small.written) < 0.8 * len(model.written)
    assert segmented(small, ENGLISH) == segmented(model, ENGLISH)
    assert {*small.written} <= {*model.written}
    for line in ENGLISH[:50]:
        assert small.processor.decode(small.encode(line)) == model.processor.decode(model.encode(line))


def test_the_scores_on_which_unknown_characters_depend_stay(model: Pieces) -> None:
    """SentencePiece scores them, and pieces that the user defined, by the rarest and the commonest piece."""
    small = trimmed(model, GREEK[:200], (), ())  # the rarest piece is a Latin letter
    if model.draws_by == "alpha":
        scores = [
            [one.processor.get_score(i) for i, piece in enumerate(one.entries) if piece]
            for one in (model, small)
        ]
        assert (min(scores[0]), max(scores[0])) == (min(scores[1]), max(scores[1]))


def test_other_text_of_the_same_script_has_no_new_unknown_characters(model: Pieces) -> None:
    small = trimmed(model, ENGLISH[:200], (), ())
    umlauts = ["Xylophon äöü 0815 %", *GERMAN]
    unknown = [[one.processor.unk_id() in ids for ids in map(one.encode, umlauts)] for one in (small, model)]
    assert unknown[0] == unknown[1]
    assert "α" in "".join(model.written) and "α" not in "".join(small.written)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_any_part_of_a_text_can_be_the_text(kind: str) -> None:
    """Words of few letters share most merges, so that one that is missing changes other words."""
    draw = random.Random(kind)
    words = ["".join(draw.choices("abcd", k=draw.randint(1, 9))) for _ in range(3000)]
    model = Pieces(spm_train(words, model_type=kind, vocab_size=700))
    for _ in range(20):
        part = draw.choices(words, k=30)
        small = trimmed(model, part, (), ())
        assert segmented(small, part) == segmented(model, part)
        assert len(small.written) < 300


def test_a_text_that_would_be_cut_differently_is_refused(
    model: Pieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "the house is small"
    all_but_one = {*range(len(model.written))} - {model.encode(line)[0]}
    monkeypatch.setattr(trim_and_grow, "needed", lambda *_: all_but_one)
    with pytest.raises(UserError, match=r"cannot be trimmed: 'the .* would be cut into other pieces\. Omit"):
        trimmed(model, [line], (), ())


def test_pieces_to_keep_stay_and_those_to_remove_go(model: Pieces) -> None:
    greek = next(i for i, piece in enumerate(model.written) if "α" in piece)
    small = trimmed(model, ENGLISH, [greek], ["<2de>"])
    assert model.written[greek] in small.written
    assert "<2de>" not in small.written


CYRILLIC = [line.translate({97 + i: 0x430 + i for i in range(26)}).lower() for line in GERMAN]


@pytest.mark.parametrize("count", [0, 100])
def test_new_pieces_make_a_new_script_known(model: Pieces, count: int) -> None:
    large = grown(model, CYRILLIC, count, ())
    new = {*large.written} - {*model.written}
    letters = {letter for line in CYRILLIC for letter in line if script_of(letter) == "CYRILLIC"}
    assert {piece for piece in new if len(piece) == 1} >= letters
    assert len(new) <= max(count, len(letters) + 3)
    assert large.written[: len(model.written)] == model.written
    unknown = large.processor.unk_id()
    assert not any(unknown in large.encode(line) for line in CYRILLIC)
    # Text in the old scripts has no piece of the new one.
    assert segmented(large, ENGLISH) == segmented(model, ENGLISH)
    before, after = (
        sum(map(len, segmented(one, CYRILLIC))) for one in (grown(model, CYRILLIC, 0, ()), large)
    )
    assert after < 0.7 * before or not count


def test_taken_texts_do_not_become_pieces(model: Pieces) -> None:
    assert "ж" in grown(model, ["жж ж"] * 9, 5, ()).written
    assert "ж" not in grown(model, ["жж ж"] * 9, 5, ["ж"]).written


@pytest.mark.parametrize(
    ("character", "script"),
    [("a", "LATIN"), ("Ä", "LATIN"), ("ж", "CYRILLIC"), ("語", "CJK"), ("ि", "DEVANAGARI")],
)
def test_letters_and_vowel_signs_have_a_script(character: str, script: str) -> None:
    assert script_of(character) == script


def test_digits_punctuation_and_accents_belong_to_all_scripts() -> None:
    assert {script_of(character) for character in ["", "5", "!", "\u0301", "ʰ", "€"]} == {""}
