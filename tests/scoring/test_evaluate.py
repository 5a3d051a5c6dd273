"""`nmt score` from request to result: files, choices of metrics, errors and warnings."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sacrebleu

from nmt_cli import config as settings
from nmt_cli.errors import UserError
from nmt_cli.scoring.config import Metric, ScoreConfig, Test
from nmt_cli.scoring.evaluate import Evaluation, Scores, evaluate
from tests.checks import refusal
from tests.scoring.conftest import Texts


def run(
    references: Sequence[Path],
    hypotheses: Sequence[Path],
    *assignments: str,
    lang: str = "",
    metrics: Sequence[Metric] = (),
    sentences: bool = False,
    significance: Test | None = None,
    by_length: bool = False,
) -> Scores:
    config = settings.read(ScoreConfig, assignments=assignments)
    names = frozenset(entry.name for entry in settings.given_entries(assignments=assignments))
    evaluation = Evaluation(references, hypotheses, lang, metrics, sentences, significance, config, names)
    return evaluate(replace(evaluation, by_length=by_length))


def metrics_of(outcome: Scores) -> list[str]:
    return [score.metric for score in outcome.systems[0].scores]


def test_by_default_both_bleu_and_chrf_are_computed(texts: Texts) -> None:
    outcome = run([texts["ref"]], [texts["one"], texts["two"]], lang="de")
    assert metrics_of(outcome) == ["bleu", "paper-bleu", "chrf"]
    assert [system.name for system in outcome.systems] == [str(texts["one"]), str(texts["two"])]
    assert (outcome.lines, outcome.language, outcome.notes) == (48, "de", [])


def test_the_ending_of_the_reference_is_the_language(texts: Texts, tmp_path: Path) -> None:
    (tmp_path / "ref.fr").write_bytes(texts["ref"].read_bytes())
    outcome = run([tmp_path / "ref.fr"], [texts["one"]])
    assert outcome.language == "fr"
    assert "tok:moses-fr" in outcome.systems[0].scores[1].signature
    outcome = run([tmp_path / "ref.fr"], [texts["one"]], lang="en")
    assert "tok:moses-en" in outcome.systems[0].scores[1].signature


@pytest.mark.parametrize("lang", ["DE", "de-AT", "de_AT"])
def test_a_language_may_have_any_region_and_case(texts: Texts, lang: str) -> None:
    outcome = run([texts["ref"]], [texts["one"]], lang=lang, metrics=["paper-bleu"])
    assert outcome.language == "de"
    assert "tok:moses-de|" in outcome.systems[0].scores[0].signature


@pytest.mark.parametrize(
    ("lang", "reason"),
    [
        ("", "it needs the target language. Give --target-lang"),
        ("tlh", "the Moses tokeniser can't split tlh into words"),
        ("zh", "the Moses tokeniser can't split zh into words"),
    ],
)
def test_without_a_language_the_papers_protocol_is_left_out_and_refused_if_requested(
    texts: Texts, lang: str, reason: str
) -> None:
    outcome = run([texts["ref"]], [texts["one"]], lang=lang)
    assert metrics_of(outcome) == ["bleu", "chrf"]
    assert outcome.notes[0].startswith(f"BLEU by the paper's protocol is left out: {reason}")
    message = refusal(run, [texts["ref"]], [texts["one"]], lang=lang, metrics=["paper-bleu"])
    assert message.startswith(f"paper-bleu can't be computed: {reason}")


def test_curly_quotes_in_references_match_straight_quotes(tmp_path: Path) -> None:
    (tmp_path / "ref.de").write_text("Er sagte „Ja“ und ging dann nach Hause\n", encoding="utf-8")
    (tmp_path / "hyp").write_text('Er sagte "Ja" und ging dann nach Hause\n', encoding="utf-8")
    outcome = run([tmp_path / "ref.de"], [tmp_path / "hyp"], metrics=["paper-bleu"])
    assert outcome.systems[0].scores[0].value == pytest.approx(100)


def test_a_repeated_metric_is_computed_once_in_the_order_of_requests(texts: Texts) -> None:
    outcome = run([texts["ref"]], [texts["one"]], metrics=["ter", "chrf++", "ter"])
    assert metrics_of(outcome) == ["ter", "chrf++"]


def test_sentences_are_scored_in_every_metric_but_the_papers(texts: Texts) -> None:
    outcome = run([texts["ref"]], [texts["one"]], lang="de", sentences=True)
    scores = outcome.systems[0].sentences
    assert [(one.metric, len(one.values)) for one in scores] == [("bleu", 48), ("chrf", 48)]


def test_a_test_gives_every_score_a_finding(texts: Texts) -> None:
    outcome = run(
        [texts["ref"]],
        [texts["one"], texts["two"], texts["other"]],
        lang="de",
        significance="bootstrap",
    )
    p_values = [[finding.p_value for finding in system.findings] for system in outcome.systems]
    assert p_values[0] == [None] * 3
    assert all(0 < p <= 1 for row in p_values[1:] for p in row if p is not None)
    assert [len(row) for row in p_values] == [3, 3, 3]


@pytest.mark.parametrize(
    ("assignments", "options", "message"),
    [
        (
            ["bleu.tokenizer=intl"],
            {"metrics": ["chrf"]},
            "bleu.tokenizer has no effect: bleu is not computed",
        ),
        (
            ["bleu.lowercase=false"],
            {"metrics": ["ter"]},
            "bleu.lowercase has no effect: bleu is not computed",
        ),
        ([], {"significance": "bootstrap"}, "--significance compares systems"),
        ([], {"lang": "de", "metrics": ["paper-bleu"], "sentences": True}, "--sentences has no effect"),
    ],
)
def test_settings_and_options_without_effect_are_refused(
    texts: Texts, assignments: Sequence[str], options: dict[str, Any], message: str
) -> None:
    assert message in refusal(run, [texts["ref"]], [texts["one"]], *assignments, **options)


def test_stdin_for_two_texts_is_refused() -> None:
    with pytest.raises(UserError, match="stdin can be read only once"):
        run([Path("-")], [Path("-")])


def test_every_reference_must_match_every_system(texts: Texts, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("one line\n")
    with pytest.raises(UserError, match=r"two has 48 lines, .*short has 1"):
        run([texts["ref"], tmp_path / "short"], [texts["two"]])


def test_invalid_bytes_and_tokenised_output_cause_warnings(tmp_path: Path) -> None:
    (tmp_path / "ref").write_bytes(b"running text.\n" * 120)
    (tmp_path / "hyp").write_bytes(b"running text .\n" * 119 + b"text \xff.\n")
    outcome = run([tmp_path / "ref"], [tmp_path / "hyp"])
    assert len(outcome.warnings) == 2
    assert "hyp: 1 of 120 lines are not UTF-8" in outcome.warnings[0]
    assert "hyp looks tokenised (119 lines end in a space and a full stop)" in outcome.warnings[1]
    assert not run([tmp_path / "ref"], [tmp_path / "ref"]).warnings
    tokenized = run([tmp_path / "ref"], [tmp_path / "hyp"], "bleu.tokenizer=none")
    assert len(tokenized.warnings) == 2
    expected = f"{tmp_path / 'ref'} does not look tokenised (120 lines end in a full stop without a space)"
    assert tokenized.warnings[1].startswith(expected)
    others = run([tmp_path / "ref"], [tmp_path / "ref", tmp_path / "hyp"], metrics=["chrf", "ter"])
    assert others.warnings[1].startswith(f"{tmp_path / 'hyp'} looks tokenised, but {tmp_path / 'ref'} does")
    assert len(others.warnings) == 2


JAPANESE = "これは、日本語の試験のための文です。\n東京タワーは一九五八年に完成した。\n"
KOREAN = "이것은 한국어 시험을 위한 문장입니다.\n서울 타워는 높습니다.\n"


@pytest.mark.parametrize(
    ("text", "lang", "settings", "warning"),
    [
        (JAPANESE, "", [], "ref has hardly any spaces, at which BLEU splits it (13a)."),
        (
            JAPANESE,
            "th",
            ["bleu.tokenizer=intl"],
            "ref has hardly any spaces, at which BLEU splits it (intl).",
        ),
        (JAPANESE, "ja", ["bleu.tokenizer=13a"], "BLEU of ja with bleu.tokenizer=13a can't be compared"),
        (KOREAN, "ko-KR", ["bleu.tokenizer=13a"], "with other scores. Use ko-mecab, which is the default."),
        (JAPANESE, "", ["bleu.tokenizer=char"], ""),
        (JAPANESE, "zh", [], ""),
        (KOREAN, "", [], ""),
        ("Die Donaudampfschifffahrtsgesellschaft fährt.\n\n", "", [], ""),
    ],
)
def test_bleu_of_a_language_without_spaces_needs_its_tokeniser(
    tmp_path: Path, text: str, lang: str, settings: list[str], warning: str
) -> None:
    (tmp_path / "ref").write_text(text, encoding="utf-8")
    outcome = run([tmp_path / "ref"], [tmp_path / "ref"], *settings, lang=lang, metrics=["bleu"])
    assert [warning in each for each in outcome.warnings] == [True] * bool(warning)
    assert run([tmp_path / "ref"], [tmp_path / "ref"], lang=lang, metrics=["chrf"]).warnings == []


def test_references_without_words_cause_a_warning(tmp_path: Path) -> None:
    (tmp_path / "ref.de").write_bytes(b"\n \n")
    (tmp_path / "hyp").write_bytes(b"eins\nzwei\n")
    assert run([tmp_path / "ref.de"], [tmp_path / "hyp"]).warnings == [
        f"{tmp_path / 'ref.de'}: all 2 lines are empty."
    ]


@pytest.mark.parametrize("significance", [None, "bootstrap"])
def test_each_length_has_the_score_of_its_lines_alone(tmp_path: Path, significance: Test | None) -> None:
    draw = Random(1)
    ref = [" ".join(draw.choices(["dog", "a", "cat-like", "runs", "is"], k=n % 45)) + "." for n in range(90)]
    outputs = [[line.replace(word, "it") for line in ref] for word in ("dog", "cat")]
    for name, lines in zip(("ref", "one", "two"), (ref, *outputs), strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    files = [tmp_path / "ref"], [tmp_path / "one", tmp_path / "two"]
    outcome = run(*files, metrics=["bleu", "chrf"], by_length=True, significance=significance)
    whole = run(*files, metrics=["bleu", "chrf"])
    assert [system.scores for system in outcome.systems] == [system.scores for system in whole.systems]
    assert [length.least for length in outcome.lengths] == [0, 3, 6, 11, 21, 41]
    for group, length in enumerate(outcome.lengths):
        own = [n for n in range(90) if length.least <= n % 45 <= (length.most or 90)]
        assert len(own) == length.lines
        for system, lines in zip(outcome.systems, outputs, strict=True):
            pair = [lines[n] for n in own], [[ref[n] for n in own]]
            expected = [sacrebleu.corpus_bleu(*pair).score, sacrebleu.corpus_chrf(*pair).score]
            assert [score.value for score in system.lengths[group]] == pytest.approx(expected)


def test_characters_count_as_words_in_languages_without_spaces(tmp_path: Path) -> None:
    lines = ["一二三四五六", "a, b", ""]
    (tmp_path / "ref.zh").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    outcome = run([tmp_path / "ref.zh"], [tmp_path / "ref.zh"], metrics=["chrf"], by_length=True)
    assert [(one.least, one.most, one.lines) for one in outcome.lengths] == [(0, 2, 2), (6, 10, 1)]
