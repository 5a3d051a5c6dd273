"""Limits on the work of the server, and metrics."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.api import Model, load
from nmt_cli.serving import service
from nmt_cli.serving.documents import Documents, TranslationRequest, cut
from nmt_cli.translation.stream import SHORT_CHARACTERS
from tests.serving.conftest import JSON, PATIENCE, Answer, Client, Serving, ask, soon

BASIC = {"q": "One dog. Two cats.", "source": "en", "target": "de"}
MANY: dict[str, object] = {
    **BASIC,
    "q": ["One dog runs here and there."] * 500,
    "model": "en-de",
    "messages": [{"role": "user", "content": "One dog runs here. " * 500}],
}
PATHS = [(path, stream) for path in ("/translate", "/v1/chat/completions") for stream in (False, True)]
"""Paths of requests, and whether the response is a stream."""


def test_a_busy_server_sends_retry_after(german: Model, serving: Serving) -> None:
    client = serving({"copies": german}, most_waiting=10)
    client.service.waiting = 9
    answer = client.post("/translate", BASIC)
    assert answer.status == 429 and answer.json()["error"].startswith("The server is busy. Try again in ")
    assert 1 <= int(answer.headers["retry-after"]) <= 30
    client.service._seconds_per_sentence = 2.0
    client.service.waiting = 9
    longer = client.post("/translate", {**BASIC, "q": "One. " * 8})
    assert longer.headers["retry-after"] == "14"  # 7 sentences must be done before
    client.service._seconds_per_sentence = 99.0
    assert client.post("/translate", BASIC).headers["retry-after"] == "60"  # server.most_seconds
    client.service.waiting = 10
    assert (
        client.send("POST", "/translate", b"?", {"content-type": JSON}).status == 429
    )  # before the body is parsed
    client.service.waiting = 8
    assert client.post("/translate", BASIC).status == 200
    assert client.service.waiting == 8


@pytest.mark.usefixtures("cramped")
@pytest.mark.parametrize("source", ["en", "fr"])
def test_a_text_that_does_not_fit_into_memory_is_an_error(
    german: Model, made_models: Path, serving: Serving, source: str
) -> None:
    with load(made_models / "french", device="cpu", threads=1) as french:
        client = serving({"copies": german, "french": french})
        answer = client.post("/translate", {**BASIC, "q": "abcdef", "source": source})
        assert answer.status == 503 and "does not fit into memory" in answer.json()["error"]
        assert client.post("/translate", {**BASIC, "q": "ab", "source": source}).status == 200
    assert client.service.waiting == 0


def test_more_sentences_than_the_limit_are_refused(german: Model, serving: Serving) -> None:
    client = serving({"copies": german}, most_waiting=10)
    answer = client.post("/translate", {**BASIC, "q": "One. " * 11})
    assert answer.status == 413 and "more than 10 sentences" in answer.json()["error"]


def test_a_document_is_cut_no_further_than_the_limit_of_sentences(
    german: Model, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serving({"copies": german}, most_waiting=10)
    read: list[str] = []

    def sentences(text: str) -> tuple[list[str], list[str]]:
        read.append(text)
        return [text], [""]

    monkeypatch.setattr(Model, "sentences", lambda _, text: sentences(text))
    for count in (100, SHORT_CHARACTERS):
        answer = client.post("/translate", {**BASIC, "q": "<p>One.</p>" * count, "format": "html"})
        assert answer.status == 413 and "more than 10 sentences" in answer.json()["error"]
        assert len(read) == 11
        read.clear()


def test_cutting_a_document_ends_with_its_request_and_holds_up_no_plain_text(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = [], []

    def endless(job: TranslationRequest, models: Sequence[Model], check: Callable[[int], None]) -> Documents:
        if not job.markup:
            return cut(job, models, check)
        begun.append(job)
        try:
            while True:
                check(1)
        finally:
            ended.append(job)

    async def story() -> Answer:
        bodies = [
            json.dumps({**BASIC, "q": "A dog runs.\n" * SHORT_CHARACTERS, "format": form}).encode()
            for form in ("html", "text")
        ]
        asked = [ask(client.app, "POST", "/translate", bodies[0], {"content-type": JSON}) for _ in range(8)]
        documents = [asyncio.ensure_future(one) for one in asked]
        while not begun:
            await asyncio.sleep(0.01)
        plain = await ask(client.app, "POST", "/translate", bodies[1], {"content-type": JSON})
        assert len(begun) == 1
        for document in documents:
            document.cancel()
        await asyncio.gather(*documents, return_exceptions=True)
        return plain

    monkeypatch.setattr(service, "cut", endless)
    assert client.runner.run(story()).status == 200
    # The thread may take the next document before its cancelled request takes it out of the line.
    assert soon(lambda: len(ended) == len(begun) < 8)


@pytest.mark.parametrize(("path", "stream"), PATHS)
def test_slow_requests_are_dropped(german: Model, serving: Serving, path: str, stream: bool) -> None:
    client = serving({"copies": german}, most_seconds=0.02)
    answer = client.post(path, {**MANY, "stream": stream})
    body = answer.body.decode()
    assert "takes more than 0.02 s" in body
    assert answer.status == 504 or stream  # the beginning of a stream may be in time
    assert client.service.waiting == 0
    value = client.service.metrics.value
    assert value("nmt_dropped_sentences_total") > 0 or value("nmt_sentences_total") == 0
    assert soon(lambda: german.queued == 0)


@pytest.mark.parametrize(("path", "stream"), PATHS)
def test_sentences_of_a_disconnected_client_are_dropped(
    german: Model, serving: Serving, path: str, stream: bool
) -> None:
    client = serving({"copies": german})
    body = json.dumps({**MANY, "stream": stream}).encode()
    client.send("POST", path, body, {"content-type": JSON}, stays=False)
    assert client.service.waiting == 0
    value = client.service.metrics.value
    assert value("nmt_dropped_sentences_total") > 0 or value("nmt_sentences_total") == 0
    assert soon(lambda: german.queued == 0)


def test_concurrent_requests_get_the_same_translations_as_single_ones(client: Client) -> None:
    options: list[dict[str, object]] = [{}, {"alternatives": 2}, {"format": "html"}, {"source": "auto"}]
    requests = [
        {**BASIC, "q": f"{number} dogs run. {'They bark. ' * (number % 5)}", **options[number % 4]}
        for number in range(24)
    ]
    alone = [client.post("/translate", fields).json() for fields in requests]

    async def together() -> list[dict[str, Any]]:
        headers = {"content-type": JSON}
        bodies = [json.dumps(fields).encode() for fields in requests]
        responses = [ask(client.app, "POST", "/translate", body, headers) for body in bodies]
        return [answer.json() for answer in await asyncio.gather(*responses)]

    for concurrent, expected in zip(client.runner.run(together()), alone, strict=True):
        assert {**concurrent, "alternatives": None} == {**expected, "alternatives": None}
        # The alternatives may depend on rounding, since the scores of the worst ones are nearly equal.
        assert len(concurrent.get("alternatives", ())) == len(expected.get("alternatives", ()))


def test_the_metrics_contain_no_user_text(client: Client, tmp_path: Path) -> None:
    client.post("/translate", {**BASIC, "q": "Xylophone."})
    metrics = client.get("/metrics").body.decode()
    assert 'nmt_requests_total{route="/translate",status="200"}' in metrics
    assert "Xylophone" not in metrics
    assert "nmt_waiting_sentences 0.0" in metrics


def test_a_cancelled_thread_ends_before_the_next_one_starts(client: Client) -> None:
    running, most, finish = 0, 0, threading.Event()

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        finish.wait(PATIENCE)
        running -= 1

    async def story() -> None:
        first = asyncio.ensure_future(client.service.run_in_thread(1, work))
        while not running:
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.ensure_future(client.service.run_in_thread(1, work))
        await asyncio.sleep(0.05)
        finish.set()
        await second

    client.runner.run(story())
    assert most == 1 and client.service.waiting == 0
