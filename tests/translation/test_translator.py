"""Preparation of lines, and text from hypotheses."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nmt_cli.decoding.config import InputConfig, SearchConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis
from nmt_cli.errors import UserError
from nmt_cli.scoring.confidence import Calibration
from nmt_cli.translation.lines import MAX_PARTS, Line
from nmt_cli.translation.loading import Loaded, load
from nmt_cli.translation.text.model_glossary import Glossary
from nmt_cli.translation.translator import TrainedOn, Translator
from tests.translation.conftest import GREEDY, ON_CPU

TERMS = {"ab": ["x" * 40]}


def translator(copier: Loaded, **settings: object) -> Translator:
    config = replace(GREEDY, input=InputConfig(**settings))  # type: ignore[arg-type]
    return Translator(copier.translator.tokenizers, copier.models, config)


def cut(translator: Translator, number: int, raw: str) -> Line:
    """Return a line cut into sentences with the settings of `translator`."""
    return translator.segmenter.line(number, raw, translator.options())


def test_a_line_is_one_sentence_without_end_mark(copier: Loaded) -> None:
    line = cut(copier.translator, 7, " ab  c ")
    assert (line.number, line.raw, line.pieces, line.too_long) == (7, " ab  c ", 4, False)
    (sentence,) = line.sentences
    tokenizer = copier.translator.tokenizers.source
    assert (sentence.key, list(sentence.tokens)) == (7 * MAX_PARTS, tokenizer.encode("ab c"))


@pytest.mark.parametrize("raw", ["", "  \t "])
def test_a_line_without_words_has_no_sentence_and_no_text(copier: Loaded, raw: str) -> None:
    line = cut(copier.translator, 1, raw)
    assert not line.sentences
    (translation,) = copier.translator.translations([(line, [])], copier.options())
    assert (translation.text, translation.candidates, translation.failed) == ("", [], False)


def test_a_too_long_line_is_translated_in_parts(copier: Loaded) -> None:
    text = f"{'a' * 40}. {'b' * 40}."
    line = cut(copier.translator, 2, text)
    assert line.too_long
    assert [sentence.key for sentence in line.sentences] == [2 * MAX_PARTS, 2 * MAX_PARTS + 1]
    (translation,) = copier.translator.translate(copier.decoder, [text])
    assert translation.text == text
    assert translation.candidates[0].tokens.count("</s>") == 2


def test_a_line_with_more_sentences_than_keys_is_refused(
    copier: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt_cli.translation.segmenter.MAX_PARTS", 2)
    by_sentence = translator(copier, sentences="split")
    assert len(cut(by_sentence, 1, "One. Two.").sentences) == 2
    with pytest.raises(UserError, match="line 1 has 3 sentences, more than 2"):
        cut(by_sentence, 1, "One. Two. Three.")


def test_a_line_that_requires_more_tokens_than_the_model_can_write_is_refused(copier: Loaded) -> None:
    with_prefix = translator(copier, prefix=True)
    (fitting,) = with_prefix.translate(copier.decoder, [f"a\t{'x' * 63}"])
    assert fitting.text == "x" * 63
    with pytest.raises(UserError, match=r"line 7 .* 64 tokens .* at most 63\. Shorten it\."):
        cut(with_prefix, 7, f"a\t{'x' * 64}")
    options = with_prefix.options(glossary=Glossary(copier.translator.tokenizers, TERMS))
    with pytest.raises(UserError, match=r"line 2 .* at most 63"):
        with_prefix.segmenter.line(2, f"ab\t{'x' * 40}", options)


def test_text_after_a_tab_begins_the_translation_of_the_first_part(copier: Loaded) -> None:
    with_prefix = translator(copier, prefix=True)
    line = cut(with_prefix, 1, f"{'a' * 70}\tx")
    assert [len(sentence.prefix) for sentence in line.sentences] == [1, 0]
    assert line.raw == "a" * 70
    assert cut(with_prefix, 1, "a\t☃").prefix_unknown
    assert not cut(with_prefix, 1, "a\tx").prefix_unknown


def test_scores_of_parts_are_summed_and_candidates_keep_their_order(copier: Loaded) -> None:
    line = cut(copier.translator, 1, f"{'a' * 40}. {'b' * 40}.")
    ids = copier.translator.tokenizers.target.encode("xy")
    parts = [
        [Hypothesis(ids, -1.0, [-0.5, -0.25, -0.25]), Hypothesis(ids[:1], -2.0, [-1.0, -1.0])],
        [Hypothesis(ids[:1], -3.0, [-1.0, -2.0]), Hypothesis(ids, -4.0, [-2.0, -1.0, -1.0])],
    ]
    (translation,) = copier.translator.translations([(line, parts)], copier.options())
    assert [(one.text, one.score, one.log_probability) for one in translation.candidates] == [
        ("xy x", -4.0, -4.0),
        ("x xy", -6.0, -6.0),
    ]


def test_a_line_fails_if_a_part_does_not_fit_into_memory(copier: Loaded) -> None:
    line = cut(copier.translator, 1, f"{'a' * 40}. {'b' * 40}.")
    found = [Hypothesis([5], -1.0, [-1.0, -1.0])]
    (translation,) = copier.translator.translations([(line, [found, None])], copier.options())
    assert (translation.failed, translation.text, translation.flags) == (True, "", ())


def test_banned_texts_do_not_occur_and_unknown_ones_are_ignored(copier: Loaded) -> None:
    search = SearchConfig(beam=4, ban=("bc", "☃"))
    free, strict = copier.options(), copier.options(search)
    translate = copier.translator.translate
    (free_one,), (strict_one,) = (translate(copier.decoder, ["abcd"], one) for one in (free, strict))
    assert free_one.text == "abcd"
    assert "bc" not in strict_one.text
    assert len(strict.banned) == 1


def test_a_line_is_split_into_sentences_on_request(copier: Loaded) -> None:
    text = "abc de. Fg h! ij"
    kept_line, split = (cut(translator(copier, sentences=how), 1, text) for how in ("keep", "split"))
    assert len(kept_line.sentences) == 1
    tokenizer = copier.translator.tokenizers.source
    parts = ["abc de.", "Fg h! ij"]  # a sentence does not end before a small letter
    assert [list(sentence.tokens) for sentence in split.sentences] == list(map(tokenizer.encode, parts))
    assert not split.too_long
    assert split.pieces == sum(len(sentence.tokens) for sentence in split.sentences)
    long = cut(translator(copier, sentences="split"), 1, f"Ab. {'C ' * 40}cd. De.")
    texts = [tokenizer.decode(sentence.tokens) for sentence in long.sentences]
    assert long.too_long and len(texts) > 3
    assert (texts[0], texts[-1]) == ("Ab.", "De.")


def test_spaces_between_sentences_stay_and_line_ends_become_spaces(copier: Loaded) -> None:
    ends = [f" Ab.{end}Cd. " for end in "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"]
    lines = ["Ab.  Cd.", *ends, "Ab. \x00 Cd.", ""]
    translations = translator(copier, sentences="split").translate(copier.decoder, lines)
    assert [one.text for one in translations] == ["Ab.  Cd.", *["Ab. Cd."] * 9, "Ab. Cd.", ""]


@pytest.fixture(scope="module")
def masking(made_models: Path) -> Loaded:
    """Return a model that copies its input, with symbols for placeholders."""
    return load([made_models / "masks"], GREEDY, ON_CPU)


@pytest.mark.parametrize(
    "text",
    [
        "Dear {{ Ünï }}, see https://x.org/☃?a=%20.",
        "%s%s a@b.co.uk!",
        "{a} {b} {c}",
        "say ⟦1⟧ and ⟦+⟧",
        "none at all",
        f"{{first}} {'a' * 40}. {'b' * 40}, {{last}}.",
    ],
)
def test_placeholders_are_restored_exactly(masking: Loaded, text: str) -> None:
    (translation,) = masking.translator.translate(masking.decoder, [text])
    assert translation.text == text
    masked = [one.placeholders.wanted for one in translation.line.sentences if one.placeholders]
    assert any(masked) == ("none" not in text)
    assert "markup" not in translation.flags


def test_a_required_beginning_may_contain_a_placeholder(masking: Loaded) -> None:
    with_prefix = translator(masking, prefix=True)
    (translation,) = with_prefix.translate(masking.decoder, ["a {ñ} b\t{ñ}! "])
    assert translation.text.startswith("{ñ}!")
    assert translation.text.count("{ñ}") == 1


def test_a_model_that_never_writes_placeholders_is_forced_to(made_models: Path) -> None:
    loops = load([made_models / "loops-masks"], GREEDY, ON_CPU)
    (translation,) = loops.translator.translate(loops.decoder, ["{{x}} and %s"])
    assert [translation.text.count(one) for one in ("{{x}}", "%s")] == [1, 1]


def test_confidence_is_the_geometric_mean_of_the_token_probabilities_or_calibrated(copier: Loaded) -> None:
    lines = ["ab c", "c", "", "ba" * 9]
    plain = copier.translator.translate(copier.decoder, lines)
    for one in plain:
        scores = one.candidates[0].token_scores if one.candidates else [0.0]
        assert one.confidence == pytest.approx(float(np.exp(np.mean(scores))))
    halved = Translator(
        copier.translator.tokenizers,
        copier.models,
        GREEDY,
        TrainedOn(calibration=Calibration([0.0, 1.0], [0.0, 0.5])),
    )
    calibrated = halved.translate(copier.decoder, lines)
    assert [one.confidence for one in calibrated if one.candidates] == pytest.approx(
        [one.confidence / 2 for one in plain if one.candidates]
    )


def test_confidence_does_not_depend_on_the_rest_of_the_batch(copier: Loaded) -> None:
    lines = ["ab c", "c", "ba" * 9]
    together = copier.translator.translate(copier.decoder, lines)
    alone = [copier.translator.translate(copier.decoder, [line])[0] for line in lines]
    assert [one.confidence for one in together] == pytest.approx([one.confidence for one in alone], abs=1e-5)


def test_a_line_of_which_the_subword_model_leaves_nothing_stays_empty(
    copier: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = translator(copier)
    monkeypatch.setattr(type(own.tokenizers.source), "encode", lambda *_: [])
    (empty,) = own.translate(copier.decoder, ["\u200b"])
    assert (empty.candidates, empty.confidence, empty.line.sentences) == ([], 1.0, [])
