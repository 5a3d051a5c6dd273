"""Models that load at their first request, and unload beyond the limit of memory."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.api import load
from nmt_cli.checkpoints.finding import recipe_of, weights_size
from nmt_cli.errors import UserError
from nmt_cli.serving import models, service
from nmt_cli.serving.documents import Documents, cut
from nmt_cli.serving.models import Leg, Served
from nmt_cli.translation.stream import SHORT_CHARACTERS
from tests.serving.conftest import JSON, SPLIT, Answer, Client, Serving, ask

LIMIT = {"memory": 1e-9}
"""Settings with room for a single model."""

Lazy = Callable[[str], Served]


@pytest.fixture
def lazy(made_models: Path) -> Iterator[Lazy]:
    """Yield a function that returns a model of `made_models` that is not loaded."""
    served: list[Served] = []

    def lazy(name: str) -> Served:
        folder = made_models / name
        opened = partial(load, folder, device="cpu", threads=1, config=SPLIT)
        served.append(Served(recipe_of(folder), opened, weights_size(folder)))
        return served[-1]

    yield lazy
    for one in served:
        one.close()


def request(client: Client, source: str, target: str, text: str = "Two cats.") -> Answer:
    return client.post("/translate", {"q": text, "source": source, "target": target})


async def asked(client: Client, text: str, source: str, target: str) -> Answer:
    body = json.dumps({"q": text, "source": source, "target": target}).encode()
    return await ask(client.app, "POST", "/translate", body, {"content-type": JSON})


def together(client: Client, requests: Sequence[tuple[str, str, str]]) -> list[Answer]:
    """Send requests at once, each with a text, a source and a target language."""

    async def gathered() -> list[Answer]:
        return await asyncio.gather(*(asked(client, *each) for each in requests))

    return client.runner.run(gathered())


def metric(client: Client, name: str) -> int:
    lines = client.get("/metrics").body.decode().splitlines()
    return next(int(float(line.split()[1])) for line in lines if line.startswith(f"{name} "))


def test_a_model_loads_at_its_first_request(lazy: Lazy, serving: Serving) -> None:
    client = serving({"copies": lazy("copies"), "french": lazy("french")}, memory=100)
    languages = {one["code"]: one["targets"] for one in client.get("/languages").json()}
    assert languages == {"en": ["de"], "fr": ["en", "de"], "de": []}
    assert len(client.get("/v1/models").json()["data"]) == 5
    assert metric(client, "nmt_loaded_models") == metric(client, "nmt_model_loads_total") == 0
    for _ in range(2):
        assert request(client, "en", "de").json() == {"translatedText": "Two cats."}
        assert metric(client, "nmt_loaded_models") == metric(client, "nmt_model_loads_total") == 1
    assert request(client, "fr", "de").json() == {"translatedText": "Two cats."}
    assert metric(client, "nmt_loaded_models") == 2


def test_the_model_whose_last_use_is_longest_ago_is_unloaded(lazy: Lazy, serving: Serving) -> None:
    copies, french = lazy("copies"), lazy("french")
    client = serving({"copies": copies, "french": french}, **LIMIT)
    for source, target in (("en", "de"), ("fr", "en"), ("en", "de")):
        assert request(client, source, target).status == 200
    assert copies.model and not french.model
    assert request(client, "fr", "de").status == 200  # a pivot needs both
    assert copies.model and french.model
    assert metric(client, "nmt_model_loads_total") == 4


def test_idle_models_are_unloaded_if_the_memory_grows_beyond_the_limit(
    lazy: Lazy, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = 0
    monkeypatch.setattr(models, "resident_memory", lambda: used)
    monkeypatch.setattr(models, "CHECK_SECONDS", 0)
    copies, french = lazy("copies"), lazy("french")
    client = serving({"copies": copies, "french": french}, memory=1)
    assert request(client, "fr", "de").status == 200
    assert copies.model and french.model  # both fitted when they were loaded
    used = 2 * 10**9
    assert request(client, "fr", "de").status == 200

    async def checked() -> None:
        assert client.service.models._check
        await client.service.models._check

    client.runner.run(checked())
    assert copies.model and french.model  # a pivot needs both
    assert request(client, "en", "de").status == 200
    client.runner.run(checked())
    assert copies.model and not french.model
    assert request(client, "fr", "en").status == 200


def test_a_folder_with_another_model_than_at_the_start_is_not_served(
    lazy: Lazy, serving: Serving, capfd: pytest.CaptureFixture[str]
) -> None:
    replaced = lazy("copies")
    replaced.load = lazy("french").load
    client = serving({"copies": replaced}, memory=100)
    answer = request(client, "en", "de")
    assert answer.status == 503 and "cannot be loaded" in answer.json()["error"]
    expected = "the model for en-de cannot be loaded: its folder now has a model for fr-en."
    assert capfd.readouterr().err == f"Error: {expected} Start nmt serve again.\n"


def test_concurrent_first_requests_load_a_model_once(lazy: Lazy, serving: Serving) -> None:
    client = serving({"copies": lazy("copies"), "french": lazy("french")}, **LIMIT)
    answers = together(client, [("A cat.", source, "de") for source in ("en", "fr") * 5])
    assert [one.json() for one in answers] == [{"translatedText": "A cat."}] * 10
    assert metric(client, "nmt_model_loads_total") == 2
    assert all(not one.requests for one in client.service.models._served)


def test_a_model_with_a_running_request_stays_loaded(
    lazy: Lazy, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, french = lazy("copies"), lazy("french")
    client = serving({"copies": copies, "french": french}, **LIMIT)

    async def refused() -> Answer:
        async with client.service.models.using([Leg(copies, "en", "de")]):
            monkeypatch.setattr("nmt_cli.serving.models.LOAD_SECONDS", 0.2)
            return await asked(client, "A cat.", "fr", "en")

    assert request(client, "en", "de").status == 200
    answer = client.runner.run(refused())
    assert answer.status == 503 and int(answer.headers["retry-after"]) > 0
    monkeypatch.undo()
    assert copies.usable and request(client, "en", "de").status == 200
    assert request(client, "fr", "en").status == 200 and not copies.model


def test_a_model_may_be_unloaded_while_a_long_text_is_split(
    lazy: Lazy, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow_cut(*arguments: Any) -> Documents:
        time.sleep(0.5)
        return cut(*arguments)

    monkeypatch.setattr(service, "cut", slow_cut)
    client = serving({"copies": lazy("copies"), "french": lazy("french")}, **LIMIT)
    text = "Two cats sleep.\n" * (SHORT_CHARACTERS // 10)
    answers = together(client, [(text, "en", "de"), ("A cat.", "fr", "en")])
    assert [one.status for one in answers] == [200, 200]


def test_a_failing_load_refuses_only_its_direction(
    lazy: Lazy, serving: Serving, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise UserError("/secret/weights is damaged.")

    french = lazy("french")
    works, french.load = french.load, fail  # type: ignore[assignment]
    client = serving({"copies": lazy("copies"), "french": french}, memory=100)
    for source, target in (("fr", "en"), ("fr", "de"), ("fr", "en")):
        answer = request(client, source, target)
        assert answer.status == 503 and "cannot be loaded" in answer.json()["error"]
        assert "secret" not in answer.json()["error"]
        assert request(client, "en", "de").status == 200
    assert capfd.readouterr().err.count("/secret/weights is damaged.") == 1  # not tried again at once
    french.load = works
    monkeypatch.setattr(models, "RETRY_SECONDS", 0)
    assert request(client, "fr", "de").status == 200


def test_a_folder_without_languages_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer.json is missing"):
        recipe_of(tmp_path)
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text('{"format": 1}')
    with pytest.raises(UserError, match="is damaged"):
        recipe_of(tmp_path)
