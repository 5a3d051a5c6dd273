"""Scores equal those of sacrebleu in every printed digit, and have its signatures."""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from sacrebleu import BLEU
from sentencepiece import SentencePieceProcessor

from nmt_cli import config as settings
from nmt_cli.errors import UserError
from nmt_cli.scoring.config import Metric, ScoreConfig
from nmt_cli.scoring.measures import Measure, bleu_tokenizer, perplexity, score
from tests.scoring.conftest import Texts, lines
from tests.scoring.neural.models import write_encoder

TWELVE_DIGITS = 6e-13


@pytest.mark.slow
@pytest.mark.parametrize("references", [["ref"], ["ref", "other"]], ids=["one reference", "two"])
@pytest.mark.parametrize(
    ("metric", "assignments", "options"),
    [
        ("bleu", [], ["-m", "bleu"]),
        ("bleu", ["bleu.lowercase=true"], ["-m", "bleu", "-lc"]),
        ("bleu", ["bleu.smoothing=floor"], ["-m", "bleu", "-s", "floor"]),
        ("bleu", ["bleu.smoothing=add-k"], ["-m", "bleu", "-s", "add-k"]),
        ("bleu", ["bleu.smoothing=none"], ["-m", "bleu", "-s", "none"]),
        *(
            ("bleu", [f'bleu.tokenizer="{name}"'], ["-m", "bleu", "-tok", name])
            for name in ("13a", "intl", "char", "zh", "none")
        ),
        ("chrf", [], ["-m", "chrf"]),
        ("chrf++", [], ["-m", "chrf", "-cw", "2"]),
        ("ter", [], ["-m", "ter"]),
    ],
    ids=str,
)
def test_every_score_is_that_of_the_sacrebleu_command(
    texts: Texts,
    sacrebleu_score: Callable[..., tuple[float, str]],
    references: Sequence[str],
    metric: Metric,
    assignments: Sequence[str],
    options: Sequence[str],
) -> None:
    config = settings.read(ScoreConfig, assignments=assignments)
    (result,) = score(lines(texts["one"]), [lines(texts[name]) for name in references], [metric], config)
    value, signature = sacrebleu_score(*(texts[name] for name in references), "-i", texts["one"], *options)
    assert result.value == pytest.approx(value, abs=TWELVE_DIGITS)
    assert result.signature == signature


@pytest.mark.parametrize(
    ("metric", "options"),
    [("bleu", ["-m", "bleu"]), ("chrf++", ["-m", "chrf", "-cw", "2"]), ("ter", ["-m", "ter"])],
)
def test_the_score_of_a_sentence_is_that_of_the_sacrebleu_command(
    texts: Texts, sacrebleu: Callable[..., str], metric: Metric, options: Sequence[str]
) -> None:
    references = [lines(texts["ref"]), lines(texts["other"])]
    result = Measure(metric, references, ScoreConfig(), "").sentences(lines(texts["two"]))
    files = (texts["ref"], texts["other"], "-i", texts["two"])
    expected = [float(line) for line in sacrebleu(*files, "-sl", "-b", *options).split()]
    assert result.values == pytest.approx(expected, abs=TWELVE_DIGITS)
    assert f"|{result.signature} =" in sacrebleu(*files, "-sl", *options)


def test_one_measure_scores_many_systems_as_if_each_were_alone(texts: Texts) -> None:
    references = [lines(texts["ref"])]
    measure = Measure("chrf", references, ScoreConfig(), "")
    for name in ("one", "two", "one"):
        assert measure.scores([lines(texts[name])]) == score(lines(texts[name]), references, ["chrf"])


def test_labels_and_signatures_name_the_kind_of_bleu(texts: Texts) -> None:
    ours, reference = lines(texts["one"]), lines(texts["ref"])
    assert [one.label for one in score(ours, [reference])] == ["BLEU (sacrebleu, detokenised, 13a)", "chrF2"]
    (paper,) = score(ours, [reference], ["paper-bleu"], lang="de")
    assert paper.label == "BLEU (paper protocol: tokenised, compounds split)"
    assert paper.signature.startswith(
        "nrefs:1|case:mixed|eff:no|punct:replaced|tok:moses-de|compounds:split|refquotes:straight|smooth:none|"
    )
    config = settings.read(ScoreConfig, assignments=["bleu.tokenizer=none"])
    (as_tokenized,) = score(["a b c d"], [["a b c d"]], ["bleu"], config)
    assert as_tokenized.label == "BLEU (sacrebleu, as tokenised in the files)"
    assert as_tokenized.value == pytest.approx(100)


@pytest.mark.parametrize(
    ("lang", "chosen", "tokenizer"),
    [
        ("de", "auto", "13a"),
        ("ja", "auto", "ja-mecab"),
        ("ko", "auto", "ko-mecab"),
        ("zh", "13a", "13a"),
        ("zh_TW", "auto", "zh"),
        ("zho_Hans", "auto", "zh"),
    ],
)
def test_the_language_decides_on_the_tokeniser_unless_the_user_does(
    lang: str, chosen: str, tokenizer: str
) -> None:
    config = settings.read(ScoreConfig, assignments=[f'bleu.tokenizer="{chosen}"'])
    assert bleu_tokenizer(config, lang) == tokenizer


def test_a_tokeniser_without_its_library_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    with pytest.raises(UserError, match=r"ja-mecab can't be used: .*pip install sacrebleu\[ja\].*=char"):
        score(["x"], [["x"]], ["bleu"], lang="ja")


def test_spbleu_counts_the_pieces_of_the_flores_tokeniser(
    texts: Texts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "sacrebleu.tokenizers.tokenizer_spm"
    monkeypatch.setattr(f"{module}.SACREBLEU_DIR", str(tmp_path))
    download = Mock(side_effect=OSError("Name or service not known"))
    monkeypatch.setattr(f"{module}.download_file", download)
    config = settings.read(ScoreConfig, assignments=["bleu.tokenizer=flores200"])
    ours, reference = lines(texts["one"]), lines(texts["ref"])
    with pytest.raises(UserError, match=r"flores200 can't be used: .*not known. sacrebleu downloads it once"):
        score(ours, [reference], ["bleu"], config)

    path = download.call_args.args[1]
    write_encoder(tmp_path)
    (tmp_path / "models").mkdir()
    Path(tmp_path / "sentencepiece.bpe.model").rename(path)
    (spbleu,) = score(ours, [reference], ["bleu"], config)
    assert "|tok:flores200|" in spbleu.signature
    assert spbleu.label == "BLEU (sacrebleu, detokenised, flores200)"
    pieces = SentencePieceProcessor(path)
    words = [[" ".join(pieces.encode(line, out_type=str)) for line in text] for text in (ours, reference)]
    expected = BLEU(tokenize="none").corpus_score(words[0], [words[1]]).score
    assert spbleu.value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("metric", ["bleu", "chrf", "chrf++", "ter", "paper-bleu"])
@pytest.mark.parametrize("hypothesis", ["", "a b c d e"], ids=["empty", "right"])
def test_an_empty_system_has_the_worst_score_and_a_perfect_one_the_best(
    metric: Metric, hypothesis: str
) -> None:
    (result,) = score([hypothesis, hypothesis], [["a b c d e"] * 2], [metric], lang="en")
    best, worst = (0, 100) if metric == "ter" else (100, 0)
    assert result.value == pytest.approx(best if hypothesis else worst)


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_counting_in_blocks_changes_no_score(
    texts: Texts, monkeypatch: pytest.MonkeyPatch, metric: Metric
) -> None:
    references = [lines(texts["ref"]), lines(texts["other"])]
    systems = [lines(texts["one"]), lines(texts["two"])]
    expected = Measure(metric, references, ScoreConfig(), "").scores(systems)
    monkeypatch.setattr("nmt_cli.scoring.measures.LINES_AT_ONCE", 7)
    measure = Measure(metric, references, ScoreConfig(), "")
    cached = [len(measure.counter._ref_cache) for _ in measure.counts(systems)]
    assert (len(cached), max(cached)) == (len(systems[0]), 7)
    assert measure.scores(systems) == expected


@pytest.mark.parametrize(
    ("nll", "units", "expected"),
    [
        (3 * math.log(7.0), 3, 7.0),
        (699.0, 1, math.exp(699.0)),
        (701.0, 1, math.inf),
        (math.inf, 1, math.inf),
    ],
)
def test_perplexity_is_the_exponential_of_the_mean_loss_or_infinite(
    nll: float, units: int, expected: float
) -> None:
    assert perplexity(nll, units) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("hypotheses", "references", "error", "message"),
    [
        (["a"], [["a", "b"]], UserError, "references[0] has 2 lines, but there are 1 hypotheses."),
        (["a"], [["a"], []], UserError, "references[1] has 0 lines, but there are 1 hypotheses."),
        (["a"], [], UserError, "There are no references."),
        ("a", [["a"]], TypeError, "hypotheses must be a list of lines, not one text. Use [text]."),
        (["a"], ["a"], TypeError, "references[0] must be a list of lines, not one text. Use [text]."),
    ],
)
def test_texts_that_are_not_aligned_are_refused(
    hypotheses: Any, references: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        score(hypotheses, references)


def test_an_unknown_metric_is_refused() -> None:
    message = "'bleau' is not a metric. Use bleu, chrf, chrf++, ter or paper-bleu."
    with pytest.raises(UserError, match=re.escape(message)):
        score(["a"], [["a"]], ["bleau"])  # type: ignore[list-item]
