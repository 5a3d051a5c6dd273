"""Significance tests have the results of the sacrebleu command."""

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from nmt_cli import config as settings
from nmt_cli.scoring.config import Metric, ScoreConfig, Test
from nmt_cli.scoring.measures import Measure
from nmt_cli.scoring.paper import PaperProtocol
from nmt_cli.scoring.scorers import ScorerMeasure
from nmt_cli.scoring.significance import compare
from tests.scoring.conftest import Texts, lines

OPTIONS = {
    "bleu": ["-m", "bleu"],
    "chrf++": ["-m", "chrf", "-cw", "2"],
    "ter": ["-m", "ter"],
    "paper-bleu": ["-m", "bleu", "-tok", "none", "-s", "none"],
}
"""paper-bleu on text that its protocol leaves as it is."""

NUMBER = r"(\d+\.\d+)"


@pytest.fixture(scope="module")
def plain(texts: Texts, tmp_path_factory: pytest.TempPathFactory) -> Texts:
    """Return the same texts with letters only."""
    folder = tmp_path_factory.mktemp("plain")
    for name, path in texts.items():
        words = "\n".join(" ".join(re.findall("[a-zA-Zäöß]+", line)) for line in lines(path))
        (folder / name).write_text(f"{words}\n", encoding="utf-8")
    return {name: folder / name for name in texts}


@pytest.mark.slow
@pytest.mark.parametrize("metric", list(OPTIONS))
def test_paired_bootstrap_is_that_of_the_sacrebleu_command(
    plain: Texts, sacrebleu: Callable[..., str], metric: Metric
) -> None:
    measure = Measure(metric, [lines(plain["ref"])], ScoreConfig(), "de")
    systems = [lines(plain["one"]), lines(plain["two"])]
    first, second = compare(measure, [*measure.counts(systems)], "bootstrap", 60)
    files = (plain["ref"], "-i", plain["one"], plain["two"])
    printed = sacrebleu(*files, *OPTIONS[metric], "--paired-bs", "--paired-bs-n", 60, "-f", "latex")
    numbers = re.findall(rf"& *{NUMBER} \({NUMBER} ± {NUMBER}\)(?: \(p = {NUMBER}\))?", printed)
    assert [float(number) for number in numbers[0][1:3]] == pytest.approx(
        [first.mean, first.margin], abs=1e-11
    )
    assert [float(number) for number in numbers[1][1:3]] == pytest.approx(
        [second.mean, second.margin], abs=1e-11
    )
    assert first.p_value is None
    assert numbers[1][3] == f"{second.p_value:.4f}"
    if metric != "paper-bleu":
        assert first.signature in printed


@pytest.mark.slow
@pytest.mark.parametrize("metric", list(OPTIONS))
def test_approximate_randomization_is_that_of_the_sacrebleu_command(
    plain: Texts, sacrebleu: Callable[..., str], metric: Metric
) -> None:
    systems = [lines(plain["one"]), lines(plain["two"])]
    measure = Measure(metric, [lines(plain["ref"])], ScoreConfig(), "de")
    _, finding = compare(measure, [*measure.counts(systems)], "randomization", 80)
    files = (plain["ref"], "-i", plain["one"], plain["two"])
    options = ("--paired-ar", "--paired-ar-n", "80", "-f", "latex")
    printed = sacrebleu(*files, *OPTIONS[metric], *options)
    assert re.findall(rf"\(p = {NUMBER}\)", printed) == [f"{finding.p_value:.4f}"]


@pytest.mark.parametrize("test", ["bootstrap", "randomization"])
def test_findings_have_an_interval_around_about_the_score(plain: Texts, test: Test) -> None:
    systems = [lines(plain["one"]), lines(plain["two"])]
    measure = Measure("bleu", [lines(plain["ref"])], ScoreConfig(), "")
    findings = compare(measure, [*measure.counts(systems)], test, 50)
    for system, finding in zip(systems, findings, strict=True):
        assert 0 < abs(finding.mean - measure.scores([system])[0].value) < finding.margin


@pytest.mark.parametrize("test", ["bootstrap", "randomization"])
def test_a_copy_of_the_first_system_differs_by_chance_alone(plain: Texts, test: Test) -> None:
    one, two = lines(plain["one"]), lines(plain["two"])
    measure = Measure("bleu", [lines(plain["ref"])], ScoreConfig(), "")
    _, other, copy = compare(measure, [*measure.counts([one, two, one])], test, 50)
    assert copy.p_value == 1.0 != other.p_value


def test_the_papers_protocol_is_tested_on_its_own_words(texts: Texts) -> None:
    raw = [lines(texts[name]) for name in ("one", "two")]
    protocol = PaperProtocol("de")
    ready = [[protocol.hypothesis(line) for line in system] for system in raw]
    reference = [protocol.reference(line) for line in lines(texts["ref"])]
    as_given = settings.read(ScoreConfig, assignments=["bleu.tokenizer=none", "bleu.smoothing=none"])
    by_protocol = Measure("paper-bleu", [lines(texts["ref"])], ScoreConfig(), "de")
    by_hand = Measure("bleu", [reference], as_given, "")
    ours = compare(by_protocol, [*by_protocol.counts(raw)], "bootstrap", 50)
    expected = compare(by_hand, [*by_hand.counts(ready)], "bootstrap", 50)
    for finding, other in zip(ours, expected, strict=True):
        assert (finding.mean, finding.margin, finding.p_value) == (other.mean, other.margin, other.p_value)


class Given:
    """A scorer that has a list of scores."""

    name, kind = "scorer", ""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = values

    def signature(self, references: int) -> str:
        return f"given|refs:{references}"

    def score(self, sources: object, hypotheses: Sequence[str], references: object) -> list[float]:
        assert list(hypotheses) == [f"{system}{line}" for line in range(200) for system in "ab"]
        return [*self.values]


def test_bootstrap_of_a_scorer_resamples_the_scores_of_lines() -> None:
    scores = np.random.default_rng(7).normal([0.8, 0.81], 0.1, (200, 2))
    systems = [[f"{system}{line}" for line in range(200)] for system in "ab"]
    measure = ScorerMeasure(Given([*scores.flatten()]), None, [], systems)
    first, second = compare(measure, [*measure.counts(systems)], "bootstrap", 500)
    rows = np.random.default_rng(12345).choice(200, (500, 200), replace=True)
    means = scores[rows].mean(1)
    assert [first.mean, second.mean] == pytest.approx(means.mean(0), abs=1e-6)
    # sacrebleu counts how often the centred difference of resamples exceeds the observed one.
    difference = np.abs(means[:, 0] - means[:, 1])
    observed = abs(scores.mean(0)[0] - scores.mean(0)[1])
    larger = (difference - difference.mean() > observed).sum()
    assert second.p_value == pytest.approx((larger + 1) / 501)
    assert second.signature == "given|refs:0|bs:500|seed:12345"
    assert [score.value for score in measure.scores(systems)] == pytest.approx(scores.mean(0))
    assert measure.sentences(systems[1]).values == pytest.approx(scores[:, 1])


def test_p_of_equal_systems_is_right_by_randomization_and_too_small_by_bootstrap() -> None:
    systems = [[f"{system}{line}" for line in range(200)] for system in "ab"]
    p_values: dict[Test, list[float]] = {"randomization": [], "bootstrap": []}
    for seed in range(40):
        scores = np.random.default_rng(seed).normal(0.8, 0.1, (200, 2))
        measure = ScorerMeasure(Given([*scores.flatten()]), None, [], systems)
        for test, values in p_values.items():
            values.append(compare(measure, [*measure.counts(systems)], test, 100)[1].p_value or 0.0)
    # The mean over pairs of equal systems is 0.5 for a right p-value.
    assert np.mean(p_values["randomization"]) == pytest.approx(0.5, abs=0.1)
    assert np.mean(p_values["bootstrap"]) < 0.35
