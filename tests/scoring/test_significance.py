"""Tests of significance are sacrebleu's own, with the same seed."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt_cli import config as settings
from nmt_cli.errors import UserError
from nmt_cli.scoring.config import Metric, ScoreConfig, SignificanceConfig, Test
from nmt_cli.scoring.metrics import Measure
from nmt_cli.scoring.paper import PaperProtocol
from nmt_cli.scoring.significance import SEED, compare

Texts = dict[str, Path]

OPTIONS = {
    "bleu": ["-m", "bleu"],
    "chrf++": ["-m", "chrf", "-cw", "2"],
    "ter": ["-m", "ter"],
    "paper-bleu": ["-m", "bleu", "-tok", "none", "-s", "none"],
}
"""paper-bleu on text that its protocol leaves as it is."""

NUMBER = r"(\d+\.\d+)"


def lines(path: Path) -> list[str]:
    return [line.rstrip() for line in path.read_text(encoding="utf-8").removesuffix("\n").split("\n")]


@pytest.fixture(scope="module")
def plain(texts: Texts, tmp_path_factory: pytest.TempPathFactory) -> Texts:
    """The same texts, only letters in them."""
    folder = tmp_path_factory.mktemp("plain")
    for name, path in texts.items():
        words = "\n".join(" ".join(re.findall("[a-zA-Zäöß]+", line)) for line in lines(path))
        (folder / name).write_text(f"{words}\n", encoding="utf-8")
    return {name: folder / name for name in texts}


@pytest.mark.slow
@pytest.mark.parametrize("metric", list(OPTIONS))
@pytest.mark.parametrize(("samples", "seed"), [(60, 12345), (37, 7)], ids=["its seed", "another"])
def test_paired_bootstrap_is_that_of_sacrebleus_command(
    plain: Texts, sacrebleu: Callable[..., str], metric: Metric, samples: int, seed: int
) -> None:
    config = SignificanceConfig(samples=samples, seed=seed)
    measure = Measure(metric, [lines(plain["ref"])], ScoreConfig(), "de")
    systems = [lines(plain["one"]), lines(plain["two"])]
    first, second = compare(measure, [*measure.counts(systems)], "bootstrap", config)
    files = (plain["ref"], "-i", plain["one"], plain["two"])
    printed = sacrebleu(
        *files, *OPTIONS[metric], "--paired-bs", "--paired-bs-n", samples, "-f", "latex", seed=seed
    )
    found = re.findall(rf"& *{NUMBER} \({NUMBER} ± {NUMBER}\)(?: \(p = {NUMBER}\))?", printed)
    assert [float(number) for number in found[0][1:3]] == pytest.approx([first.mean, first.margin], abs=1e-11)
    assert [float(n) for n in found[1][1:3]] == pytest.approx([second.mean, second.margin], abs=1e-11)
    assert first.p_value is None
    assert found[1][3] == f"{second.p_value:.4f}"
    if metric != "paper-bleu":
        assert first.signature in printed


@pytest.mark.slow
@pytest.mark.parametrize("metric", list(OPTIONS))
def test_approximate_randomization_is_that_of_sacrebleus_command(
    plain: Texts, sacrebleu: Callable[..., str], metric: Metric
) -> None:
    systems = [lines(plain["one"]), lines(plain["two"])]
    measure = Measure(metric, [lines(plain["ref"])], ScoreConfig(), "de")
    _, finding = compare(
        measure, [*measure.counts(systems)], "randomization", SignificanceConfig(samples=80, seed=9)
    )
    files = (plain["ref"], "-i", plain["one"], plain["two"])
    options = ("--paired-ar", "--paired-ar-n", "80", "-f", "latex")
    printed = sacrebleu(*files, *OPTIONS[metric], *options, seed=9)
    assert re.findall(rf"\(p = {NUMBER}\)", printed) == [f"{finding.p_value:.4f}"]


@pytest.mark.parametrize("test", ["bootstrap", "randomization"])
def test_the_same_seed_gives_the_same_findings_whatever_the_environment_says(
    plain: Texts, monkeypatch: pytest.MonkeyPatch, test: Test
) -> None:
    systems = [lines(plain["one"]), lines(plain["two"])]

    def found(seed: int) -> tuple[float | None, float]:
        measure = Measure("bleu", [lines(plain["ref"])], ScoreConfig(), "")
        _, finding = compare(
            measure, [*measure.counts(systems)], test, SignificanceConfig(samples=50, seed=seed)
        )
        return finding.p_value, finding.margin

    once = found(3)
    monkeypatch.setenv(SEED, "99")
    assert found(3) == once
    assert os.environ[SEED] == "99"
    assert found(4) != once


def test_the_papers_protocol_is_tested_on_what_it_counts(texts: Texts) -> None:
    raw = [lines(texts[name]) for name in ("one", "two")]
    protocol = PaperProtocol("de", straight_quotes=True)
    ready = [[protocol.hypothesis(line) for line in system] for system in raw]
    reference = [protocol.reference(line) for line in lines(texts["ref"])]
    as_given = settings.read(ScoreConfig, assignments=["bleu.tokenizer=none", "bleu.smoothing=none"])
    few = SignificanceConfig(samples=50)
    by_protocol = Measure("paper-bleu", [lines(texts["ref"])], ScoreConfig(), "de")
    by_hand = Measure("bleu", [reference], as_given, "")
    found = compare(by_protocol, [*by_protocol.counts(raw)], "bootstrap", few)
    by_others = compare(by_hand, [*by_hand.counts(ready)], "bootstrap", few)
    for ours, expected in zip(found, by_others, strict=True):
        assert (ours.mean, ours.margin, ours.p_value) == (expected.mean, expected.margin, expected.p_value)


@pytest.mark.parametrize("test", ["bootstrap", "randomization"])
def test_both_tests_give_every_system_an_interval_around_its_score(plain: Texts, test: Test) -> None:
    systems = [lines(plain["one"]), lines(plain["two"])]
    measure = Measure("bleu", [lines(plain["ref"])], ScoreConfig(), "")
    findings = compare(measure, [*measure.counts(systems)], test, SignificanceConfig(samples=50))
    for system, finding in zip(systems, findings, strict=True):
        assert 0 < abs(finding.mean - measure(system).value) < finding.margin


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("significance.seed=0", "seed is 0; take at least 1"),
        ("significance.samples=-1", "samples is -1; take at least 0"),
    ],
)
def test_a_useless_number_of_samples_or_seed_is_refused(assignment: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings.read(ScoreConfig, assignments=[assignment])
