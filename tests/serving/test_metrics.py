"""The metrics in the format of Prometheus."""

import re
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nmt_cli.api import load
from nmt_cli.serving.config import ServerConfig
from nmt_cli.serving.metrics import BOUNDS, CONFIDENCES, Metrics
from nmt_cli.serving.models import Models, Served
from nmt_cli.text.config import TextConfig
from nmt_cli.text.tokenizers import Recipe
from nmt_cli.translation.lines import Line, Translation
from tests.serving.conftest import Serving

KINDS = {
    "nmt_requests_total": "counter",
    "nmt_request_seconds": "histogram",
    "nmt_confidence": "histogram",
    "nmt_sentences_total": "counter",
    "nmt_characters_total": "counter",
    "nmt_dropped_sentences_total": "counter",
    "nmt_waiting_sentences": "gauge",
    "nmt_worker_restarts_total": "counter",
    "nmt_loaded_models": "gauge",
    "nmt_model_loads_total": "counter",
    "nmt_odd_translations_total": "counter",
}
"""The name and the kind of each metric, on which dashboards rely."""


def made() -> Metrics:
    metrics, model = Metrics(), SimpleNamespace(restarts=2)
    anything: Any = model
    models = Models(
        [Served(Recipe("char", True, "en", "de", TextConfig()), lambda: anything, model=anything)],
        ServerConfig(),
    )
    metrics.watch(lambda: 7, models)
    return metrics


def values_in(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_the_text_has_the_format_of_prometheus() -> None:
    metrics = made()
    for seconds, status in ((0.02, 200), (0.3, 200), (100.0, 504)):
        metrics.record("/translate", status, seconds)
    metrics.sentences.inc(3)
    text = metrics.as_text()
    form = re.compile(r'(# (HELP|TYPE) \w+ .+|\w+(\{(\w+="[^"]*",?)+\})? [0-9.]+)')
    assert all(form.fullmatch(line) for line in text.splitlines()) and text.endswith("\n")
    values = values_in(text)
    assert values['nmt_requests_total{route="/translate",status="200"}'] == 2
    buckets = [values[f'nmt_request_seconds_bucket{{le="{bound}",route="/translate"}}'] for bound in BOUNDS]
    assert buckets == [0, *[1] * 4, *[2] * 7]
    assert values['nmt_request_seconds_bucket{le="+Inf",route="/translate"}'] == 3
    assert values['nmt_request_seconds_count{route="/translate"}'] == 3
    assert values['nmt_request_seconds_sum{route="/translate"}'] == 100.32
    assert values["nmt_waiting_sentences"] == 7 and values["nmt_worker_restarts_total"] == 2
    assert values["nmt_loaded_models"] == values["nmt_model_loads_total"] == 1
    assert metrics.value("nmt_sentences_total") == values["nmt_sentences_total"] == 3


def test_each_metric_has_its_name_and_kind_and_no_other_exists() -> None:
    kinds = re.findall(r"(?m)^# TYPE (\w+) (\w+)$", made().as_text())
    assert dict(kinds) == KINDS and len(kinds) == len(KINDS)


def test_counters_without_labels_start_at_zero() -> None:
    values = values_in(made().as_text())
    names = ("nmt_sentences_total", "nmt_characters_total", "nmt_dropped_sentences_total")
    assert [values[name] for name in names] == [0, 0, 0]
    assert values["nmt_confidence_count"] == 0


def test_flags_and_confidence_of_translations_are_counted() -> None:
    metrics, line = made(), Line(1, "a secret", (), 2, too_long=False, prefix_unknown=False)
    best: Any = [SimpleNamespace(text="ein Geheimnis")]
    metrics.translated(Translation(line, best, ("looping", "short"), False, confidence=0.25))
    metrics.translated(Translation(line, (), ("empty",), False))  # no candidate has no confidence
    text = metrics.as_text()
    values = values_in(text)
    flags = ("looping", "short", "empty")
    assert [values[f'nmt_odd_translations_total{{flag="{flag}"}}'] for flag in flags] == [1, 1, 1]
    assert [values[f'nmt_confidence_bucket{{le="{bound}"}}'] for bound in CONFIDENCES] == [0, 0, *[1] * 8]
    assert values["nmt_confidence_sum"] == 0.25 and values["nmt_confidence_count"] == 1
    assert "secret" not in text and "Geheimnis" not in text


def test_flags_of_the_translation_into_the_pivot_language_count(made_models: Path, serving: Serving) -> None:
    with ExitStack() as stack:
        folders = [made_models / name for name in ("french", "silent")]
        french, silent = (stack.enter_context(load(one, device="cpu", threads=1)) for one in folders)
        client = serving({"french": french, "silent": silent})
        fields = {"q": "le chien voit un chat ici", "source": "fr", "target": "de"}
        assert client.post("/translate", fields).json() == {"translatedText": ""}
        values = values_in(client.service.metrics.as_text())
        flags = ("copied", "empty")
        assert [values.get(f'nmt_odd_translations_total{{flag="{flag}"}}') for flag in flags] == [1, 1]
