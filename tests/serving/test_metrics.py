"""The metrics in the format of Prometheus."""

import re
from types import SimpleNamespace
from typing import Any

from nmt_cli.serving.config import ServerConfig
from nmt_cli.serving.metrics import BOUNDS, Metrics
from nmt_cli.serving.models import Models, Served


def test_the_text_has_the_format_of_prometheus() -> None:
    metrics = Metrics(sentences=3, characters=40, dropped=1)
    for seconds, status in ((0.02, 200), (0.3, 200), (100.0, 504)):
        metrics.record("/translate", status, seconds)
    metrics.flags["empty"] += 1
    model: Any = SimpleNamespace(restarts=2)
    models = Models([Served(("en", "de"), lambda: model, model=model)], ServerConfig())
    lines = metrics.as_text(7, models).splitlines()
    form = re.compile(r'(# (HELP|TYPE) \w+ .+|\w+(\{(\w+="[^"]*",?)+\})? [0-9.]+)')
    assert all(form.fullmatch(line) for line in lines)
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values['nmt_requests_total{route="/translate",status="200"}'] == "2"
    buckets = [int(values[f'nmt_request_seconds_bucket{{route="/translate",le="{b:g}"}}']) for b in BOUNDS]
    assert buckets == [0, *[1] * 4, *[2] * 7]
    assert values['nmt_request_seconds_bucket{route="/translate",le="+Inf"}'] == "3"
    assert values['nmt_request_seconds_count{route="/translate"}'] == "3"
    assert float(values['nmt_request_seconds_sum{route="/translate"}']) == 100.32
    assert values["nmt_waiting_sentences"] == "7" and values["nmt_worker_restarts_total"] == "2"
    assert values["nmt_loaded_models"] == values["nmt_model_loads_total"] == "1"
