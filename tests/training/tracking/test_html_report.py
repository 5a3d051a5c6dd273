"""`report.html` shows the whole run in one file, and each validation replaces it atomically."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.checkpoints.run_folder import read_state
from nmt_cli.data.dataset import Dataset, raw_lines
from nmt_cli.model.cost import training_flops
from nmt_cli.training.tracking.events import Doing, Event, Progress, Spent, Standing, Warned
from nmt_cli.training.tracking.history import POINTS, RunHistory
from nmt_cli.training.tracking.html_report import HtmlReport
from nmt_cli.training.validation.judge import SAMPLES, sample_lines
from tests.training.runs import Go, Tiny, content_of, lines_of

Make = Callable[..., HtmlReport]

VALIDATED = ("validation.every_steps=2", "training.max_steps=5")
SPENT = Spent(model_flops=1.5e15, hours=2.0, device_hours=8.0)
TRAINING, DONE = Standing("training", SPENT, 60.0), Standing("done", SPENT, 0.0)
NASTY = "</script><img src=x onerror=alert(1)> & \"quoted\" 'so' /*DATA*/ ü 語"

BY_LENGTH = "By length on", "0 to 5", "1,234", "7.25", "41 or more", "31.00"


def rounded(values: list[float]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


@pytest.fixture
def report(tmp_path: Path, tiny: Tiny) -> Make:
    """Return a function that makes the report of N steps with a validation after the last."""

    def report(steps: int, warn: Callable[[Event], None] = lambda event: None) -> HtmlReport:
        step = {"epoch": 0, "learning_rate": 1e-3, "source_tokens": 3, "target_tokens": 4, "skipped": False}
        measured = {"loss": 2.5, "nll": 1.25, "gradient_norm": 0.123456, "tokens_per_second": 1000.0}
        validation = {
            **{"step": steps, "valid": NASTY, "nll": 1.0, "perplexity": 2.7, "word_perplexity": 9.0},
            **{"bleu": 30.0, "signatures": {"bleu": "x"}, "samples": {"4": NASTY}},
            "by_length": [
                {"least": 0, "most": 5, "lines": 1234, "bleu": 7.25},
                {"least": 41, "most": None, "lines": 9, "bleu": 31.0},
            ],
        }
        history = RunHistory()
        rates = [1e-3] * (steps - 1) + [0.0]  # of a linear schedule, shortened
        history.add(
            {**step, **measured, "step": number, "learning_rate": rate}
            for number, rate in enumerate(rates, 1)
        )
        history.add([validation])
        sentences = {NASTY: {4: (NASTY, "ein Satz")}}
        return HtmlReport(tmp_path, ("en", "de"), {"Dataset": NASTY}, sentences, tiny(), history, warn)

    return report


def test_the_curves_are_those_of_the_log(go: Go, run: Path) -> None:
    go(*VALIDATED)
    content, lines = content_of(run / "report.html"), lines_of(run)
    steps = [line for line in lines if "valid" not in line]
    curves = content["curves"]
    assert curves["step"] == [1, 2, 3, 4, 5]
    for name in ("loss", "nll", "gradient_norm", "learning_rate", "tokens_per_second"):
        assert curves[name]["mean"] == rounded([line[name] for line in steps])
    (judged,) = content["validations"]
    validations = [line for line in lines if "valid" in line]
    assert (judged["set"], judged["step"]) == ("dev", [2, 4, 5])
    assert judged["perplexity"] == rounded([line["perplexity"] for line in validations])
    assert judged["scores"]["bleu"] == rounded([line["bleu"] for line in validations])
    assert judged["by_length"] == validations[-1]["by_length"] != []
    assert (content["state"], content["step"], content["languages"]) == ("done", 5, ["en", "de"])


def test_the_same_sentences_are_translated_at_each_validation(go: Go, run: Path, dataset: Dataset) -> None:
    go(*VALIDATED)
    (samples,) = content_of(run / "report.html")["samples"]
    logged = [line["samples"] for line in lines_of(run) if "valid" in line]
    sources, references = (raw_lines(dataset, dataset.splits["dev"], side) for side in ("source", "target"))
    assert (samples["set"], samples["step"], len(samples["sentences"])) == ("dev", [2, 4, 5], SAMPLES)
    for sentence in samples["sentences"]:
        line = sentence["line"] - 1
        assert (sentence["source"], sentence["reference"]) == (sources[line], references[line])
        assert sentence["translations"] == [translations[str(line)] for translations in logged]


@pytest.mark.parametrize(
    ("count", "expected"), [(0, []), (1, [0]), (5, [0, 1, 2, 3, 4]), (16, range(1, 16, 2))]
)
def test_samples_are_spread_over_the_translated_lines(count: int, expected: list[int]) -> None:
    assert sample_lines(count) == list(expected)


def test_it_is_written_at_each_validation(go: Go, run: Path) -> None:
    seen: list[tuple[int, int | None, str]] = []

    def look(event: Event) -> None:
        if isinstance(event, Doing) and event.what == "training":
            page = run / "report.html"
            content: dict[str, Any] = content_of(page) if page.exists() else {"step": None, "state": ""}
            seen.append((event.step, content["step"], content["state"]))

    go(*VALIDATED, report=look)
    assert seen == [(1, None, ""), (2, None, ""), (3, 2, "training"), (4, 2, "training"), (5, 4, "training")]


def test_a_resumed_run_shows_all_of_it(go: Go, run: Path) -> None:
    go("validation.every_steps=2", "training.max_steps=2")
    before = content_of(run / "report.html")
    (stored,) = checkpoints(run).values()
    _, events = go("validation.every_steps=2", "training.max_steps=4", "training.log_every=1")
    after = content_of(run / "report.html")
    assert after["curves"]["step"] == [1, 2, 3, 4]
    assert after["validations"][0]["step"] == [2, 4]
    assert after["cost"]["model_flops"] > 1.5 * before["cost"]["model_flops"]
    # Seconds after the last checkpoint, such as those of writing the page, do not count in a resumed run.
    assert after["cost"]["device_hours"] > read_state(stored)["device_seconds"] / 3600
    (bleu,) = before["validations"][0]["scores"]["bleu"]
    first = next(event for event in events if isinstance(event, Progress))
    assert first.bleu == pytest.approx((bleu, bleu), abs=1e-3)


def test_a_stopped_run_is_shown_as_stopped(go: Go, run: Path) -> None:
    go("training.max_steps=50", stop_at=1)
    assert content_of(run / "report.html")["state"] == "stopped"


@pytest.mark.parametrize(
    ("settings", "draws"), [((), 1), (("loss.r_drop=1", "model.residual_dropout=0.1"), 2)]
)
def test_the_cost_counts_all_tokens_and_devices(
    go: Go, run: Path, dataset: Dataset, tiny: Tiny, settings: tuple[str, ...], draws: int
) -> None:
    _, events = go(*settings)
    (spent,) = [event for event in events if isinstance(event, Spent)]
    lines = lines_of(run)
    source, target = (sum(line[f"{side}_tokens"] for line in lines) for side in ("source", "target"))
    vocabulary = dataset.manifest["tokenizer"]["target_vocabulary"]
    assert spent.model_flops == draws * training_flops(tiny().model, vocabulary, source, target)
    assert spent.device_hours == pytest.approx(spent.hours)
    paper = content_of(run / "report.html")["cost"]["paper"]
    assert [f"{paper[name]['flops']:.1e}" for name in ("base", "big")] == ["3.3e+18", "2.3e+19"]


def test_the_page_has_the_cost_and_loads_nothing_from_elsewhere(report: Make, tmp_path: Path) -> None:
    report(3)(TRAINING)
    cost = content_of(tmp_path / "report.html")["cost"]
    assert (cost["model_flops"], cost["hours"], cost["device_hours"]) == (1.5e15, 2.0, 8.0)
    assert cost["flops"] == pytest.approx(2.0 * 3600 * 4 * 9.5e12, rel=1e-4)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "default-src 'none'" in page
    assert re.findall(r"https?://[^\"'\s]*", page) == ["http://www.w3.org/2000/svg"]
    assert re.findall(r"@import|url\((?!#)|<link(?! rel=\"icon\" href=\"data:,\")|\ssrc=\"", page) == []


def test_translations_cannot_inject_html(report: Make, tmp_path: Path) -> None:
    report(3)(TRAINING)
    content = content_of(tmp_path / "report.html")
    assert content["samples"][0]["sentences"][0]["translations"] == [NASTY]
    assert (content["samples"][0]["set"], content["facts"]) == (NASTY, [["Dataset", NASTY]])
    assert (tmp_path / "report.html").read_text("utf-8").count("</script>") == 2


def test_a_long_run_has_no_larger_report(report: Make, tmp_path: Path) -> None:
    sizes = []
    for steps in (2 * POINTS, 9 * POINTS):
        report(steps)(TRAINING)
        sizes.append((tmp_path / "report.html").stat().st_size)
    assert sizes[1] < 1.1 * sizes[0] < 300_000


def test_a_full_disk_keeps_the_old_page_and_warns(
    report: Make,
    events: list[Event],
    tmp_path: Path,
    full_disk: Callable[[int], AbstractContextManager[None]],
) -> None:
    page = report(3, events.append)
    page(TRAINING)
    before = (tmp_path / "report.html").read_bytes()
    with full_disk(1000):
        page(DONE)
    assert (tmp_path / "report.html").read_bytes() == before
    assert [type(event) for event in events] == [Warned]
    assert {path.name for path in tmp_path.iterdir()} == {"report.html"}


@pytest.mark.slow
def test_a_browser_draws_it(report: Make, tmp_path: Path, shown_by_browser: Callable[[Path], str]) -> None:
    replace(report(30), facts={"Parameters": "63 M"})(DONE)
    shown = shown_by_browser(tmp_path / "report.html")
    drawn = shown.split("<main>")[1].split("<script")[0]
    assert len(re.findall(r'<path d="M[\d. ]', drawn)) >= 6
    for message in (
        "Learning rate",
        "Gradient norm",
        "Throughput",
        "Perplexity",
        "63 M",
        "best 30.00",
        *BY_LENGTH,
    ):
        assert message in drawn
    assert ">0<" in drawn and ">0.000<" not in drawn
    assert "ein Satz" in drawn
    assert "&lt;/script&gt;" in drawn
    assert "<img" not in drawn
