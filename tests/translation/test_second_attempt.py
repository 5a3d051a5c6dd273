"""`search.second_attempt`: loops and copies are searched again, and nothing else changes."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from nmt_cli.api import Model, SearchConfig, load
from nmt_cli.decoding.search.hypotheses import History, Hypothesis, Sentence
from nmt_cli.text.config import TextConfig, TokenizerConfig
from nmt_cli.text.tokenizers import Recipe, learn_tokenizers
from nmt_cli.translation.call_options import CallOptions
from nmt_cli.translation.joiner import Joiner
from nmt_cli.translation.lines import Line, Translation
from nmt_cli.translation.second_attempt import SecondAttempts

LINE = "the dog sees a cat here"
CODES = ("eng_Latn", "deu_Latn")
ONCE = SearchConfig(beam=1)
TWICE = SearchConfig(beam=1, second_attempt=True)
BEAMS = (TWICE, replace(TWICE, beam=3, n_best=3), replace(TWICE, beam=3, mbr="chrf"))


@pytest.fixture(scope="module")
def loops(made_models: Path) -> Iterator[Model]:
    """Return a model that writes "a" again and again."""
    with load(made_models / "loops", device="cpu", threads=1) as model:
        yield model


@pytest.fixture(scope="module")
def copies(made_models: Path) -> Iterator[Model]:
    with load(made_models / "copies", device="cpu", threads=1) as model:
        yield model


def translated(model: Model, line: str, search: SearchConfig, aligned: bool = False) -> Translation:
    (translation,) = model.translations([line], search, aligned=aligned)
    return translation


@pytest.mark.parametrize("search", BEAMS, ids=["greedy", "n-best", "mbr"])
def test_a_loop_is_replaced_by_a_translation_without_repeated_4_grams(
    loops: Model, search: SearchConfig
) -> None:
    first = translated(loops, LINE, replace(search, second_attempt=False))
    assert first.flags == ("looping",) and "aaaaaaaaaa" in first.text and not first.repaired
    second = translated(loops, LINE, search)
    assert second.flags == () and second.repaired
    for candidate in second.candidates:
        windows = [candidate.text[i : i + 4] for i in range(len(candidate.text) - 3)]
        assert len({*windows}) == len(windows)


def test_the_scores_and_the_alignment_of_a_second_attempt_are_those_of_the_model(loops: Model) -> None:
    found = translated(loops, LINE, TWICE, aligned=True)
    (candidate,) = found.candidates
    (scored,) = loops.token_scores([(LINE, found.text)])
    assert candidate.token_scores == pytest.approx(scored.token_scores, abs=1e-3)
    (maps,) = loops.attention_maps([(LINE, found.text)])
    # The end token of the translation has no row.
    expected = maps.cross[-1].mean(0)[: len(candidate.tokens) - 1].numpy()
    attention = candidate.parts[0].attention_TS
    assert attention is not None
    np.testing.assert_allclose(attention[: len(expected)], expected, atol=1e-4)
    assert len(found.shares) == 1  # the translation is one word


def test_every_way_to_translate_makes_second_attempts(loops: Model, made_models: Path) -> None:
    lines = [LINE, "", "ab", *["One dog."] * 20]
    expected = [one.text for one in loops.translations(lines, TWICE)]
    assert all(len(text) - text.count("a") > 5 for text in expected if text)
    assert asyncio.run(loops.atranslate(lines, TWICE)) == expected
    with load(made_models / "loops", device="cpu", threads=2) as processes:
        assert processes.translate(lines, TWICE) == expected
    loaded = loops._loaded
    here = loaded.translator.translate(loaded.decoder, lines, CallOptions(TWICE))
    assert [one.text for one in here] == expected


def test_sentences_without_a_fault_do_not_change(copies: Model) -> None:
    lines = ["abc", "One Dog.", "a b", ""]
    results = [[*copies.translations(lines, search)] for search in (ONCE, TWICE)]
    assert [one.candidates for one in results[0]] == [one.candidates for one in results[1]]
    assert not any(one.repaired for one in results[1])


def test_a_copy_is_replaced_by_a_translation_without_pairs_of_source_tokens(copies: Model) -> None:
    assert translated(copies, LINE, ONCE).flags == ("copied",)
    found = translated(copies, LINE, TWICE)
    assert found.repaired and found.flags == ()
    pairs = {LINE[i : i + 2] for i in range(len(LINE) - 1)}
    assert not any(pair in found.text for pair in pairs)


def test_the_first_attempt_is_kept_if_the_second_has_another_flag(copies: Model) -> None:
    short = replace(TWICE, max_length=len(LINE))
    assert translated(copies, LINE, short).repaired

    # A second attempt that writes nothing would lose the sentence.
    def end(log_probs_RV: Tensor, history: History, end: int) -> None:
        for row, item in enumerate(history.items_R):
            if item.bans:
                log_probs_RV[row] = -float("inf")
                log_probs_RV[row, end] = 0

    (kept,) = copies.translations([LINE], TWICE, rule=end)
    assert kept.text == LINE and kept.flags == ("copied",) and not kept.repaired


def test_the_rule_of_the_program_holds_in_both_attempts(loops: Model) -> None:
    def no_f(log_probs_RV: Tensor, history: History, end: int) -> None:
        log_probs_RV[:, loops.tokenizers.target.encode("f")] = -float("inf")

    without, with_rule = (next(iter(loops.translations([LINE], TWICE, rule=rule))) for rule in (None, no_f))
    assert "f" in without.text and "f" not in with_rule.text
    assert with_rule.repaired and with_rule.flags == ()


def test_a_hypothesis_of_the_beam_without_a_fault_needs_no_second_search(loops: Model) -> None:
    loaded = loops._loaded
    options = CallOptions(replace(TWICE, beam=2, n_best=2))
    line = loaded.translator.segmenter.line(1, LINE, options)
    encode = loaded.translator.tokenizers.target.encode
    looping, good = (Hypothesis(encode(text), 0.0, [0.0]) for text in ("ab" * 40, "der Hund sieht"))
    attempts = SecondAttempts(loaded.translator.joiner)
    assert attempts.again(line.sentences[0], [looping, good]) is None
    (found,) = loaded.translator.translations([(line, [[looping, good]])], options)
    assert [one.text for one in found.candidates] == ["der Hund sieht", "ab" * 40]
    assert found.repaired and found.flags == ()
    again = attempts.again(line.sentences[0], [looping])
    assert again and again.key == line.sentences[0].key and attempts.again(again, [looping]) is None


def ids(model: Model, text: str) -> list[int]:
    return model.tokenizers.target.encode(text)


def hypothesis(model: Model, text: str) -> Hypothesis:
    return Hypothesis(ids(model, text), 0.0, [0.0])


def cut(model: Model, text: str, options: CallOptions) -> Line:
    return model._loaded.translator.segmenter.line(1, text, options)


def test_a_hypothesis_with_another_flag_is_not_better_than_a_loop(loops: Model) -> None:
    options = CallOptions(replace(TWICE, beam=2, n_best=2))
    translator, line = loops._loaded.translator, cut(loops, LINE, options)
    for other in ("", "Hund"):
        found = [hypothesis(loops, text) for text in ("ab" * 20, other)]
        (shown,) = translator.translations([(line, [found])], options)
        assert [one.text for one in shown.candidates] == ["ab" * 20, other] and not shown.repaired
        assert SecondAttempts(translator.joiner).again(line.sentences[0], found)


def test_a_better_hypothesis_of_the_second_search_is_used_although_its_best_has_a_fault(loops: Model) -> None:
    options = CallOptions(replace(TWICE, beam=2, n_best=2))
    translator, line = loops._loaded.translator, cut(loops, LINE, options)
    attempts, (sentence,) = SecondAttempts(translator.joiner), line.sentences
    assert attempts.again(sentence, [hypothesis(loops, "ab" * 20)])
    second = attempts.better(sentence, [hypothesis(loops, text) for text in (LINE, "der Hund sieht")])
    (shown,) = translator.translations([(line, [second])], options)
    assert shown.text == "der Hund sieht" and shown.repaired


def test_a_better_hypothesis_comes_before_those_that_agree_more(loops: Model) -> None:
    options = CallOptions(replace(TWICE, beam=3, mbr="chrf"))
    translator, line = loops._loaded.translator, cut(loops, LINE, options)
    found = [hypothesis(loops, text) for text in ("ab" * 20, "ab" * 19, "der Hund sieht")]
    assert SecondAttempts(translator.joiner).again(line.sentences[0], found) is None
    (shown,) = translator.translations([(line, [found])], options)
    assert [one.text for one in shown.candidates] == ["der Hund sieht"] and shown.repaired
    without = CallOptions(replace(options.search, second_attempt=False))
    (shown,) = translator.translations([(line, [found])], without)
    assert shown.text.startswith("abab")


def test_the_second_search_for_a_copy_can_write_terms_tags_and_numbers(made_models: Path) -> None:
    with load(made_models / "terms", device="cpu", threads=1) as model:
        options = CallOptions(
            replace(TWICE, beam=2, glossary="hard"), glossary=model.glossary({"dog": ["dog"]})
        )
        line = "the <b>dog<i> sees a cat 1789 times here"
        ((sentence,), attempts) = (
            cut(model, line, options).sentences,
            SecondAttempts(model._loaded.translator.joiner),
        )
        again = attempts.again(sentence, [hypothesis(model, line)])
        assert again
        banned = {model.tokenizers.target.decode(pair) for pair in again.banned}
        assert {"th", "he", "ca", "at"} <= banned
        assert not banned & {"do", "og", "<b", "b>", "<i", "i>", "17", "78", "89"}
        # Tags are not put back later.
        lost, kept = (hypothesis(model, text) for text in ("der dog sieht eine", "der <b>dog<i> sieht eine"))
        assert [one.tokens for one in attempts.better(sentence, [lost]) or ()] == [ids(model, line)]
        assert attempts.again(sentence, [hypothesis(model, line)])
        assert [one.tokens for one in attempts.better(sentence, [kept]) or ()] == [kept.tokens]


def test_the_second_search_for_a_copy_can_begin_with_the_first_token_of_the_source() -> None:
    recipe = Recipe("char", True, "en", "de", TextConfig(), CODES, begins=CODES)
    made = learn_tokenizers(recipe, TokenizerConfig(kind="char"), {"source": [LINE], "target": []})
    sentence = Sentence(1, made.source.encode(made.source.prepare(LINE)), raw=LINE)
    copy = Hypothesis(made.target.encode(made.target.prepare(LINE)), 0.0, [0.0])
    again = SecondAttempts(Joiner(made, False)).again(sentence, [copy])
    assert again and made.target.begin
    assert not {*made.target.codes} & {i for pair in again.banned for i in pair}
    assert [*made.target.encode("th")] in [[*pair] for pair in again.banned]
