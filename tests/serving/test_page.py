"""The page of the server, and the alignments and attention pages that it requests."""

import asyncio
import base64
import hashlib
import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from nmt_cli.api import Model
from tests.serving.conftest import PATIENCE, Client, Serving

DRIVER = Path(__file__).parent / "driver.js"
PAIRS = {"source": "en", "target": "de", "pairs": [["One dog.", "One dog."], ["", ""], ["a" * 80, "a"]]}


def test_the_policy_allows_only_the_scripts_and_styles_of_the_page(client: Client) -> None:
    answer = client.get("/")
    page = answer.body.decode()
    (policy,) = re.findall(r'Content-Security-Policy"\s+content="(.*?)"', page, re.S)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'" and "unsafe" not in policy
    for name, pattern in {
        "script-src": "<script>(.*?)</script>",
        "style-src": "<style>(.*?)</style>",
    }.items():
        (content,) = re.findall(pattern, page, re.S)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    assert answer.headers["Content-Security-Policy".lower()] == "frame-ancestors 'none'"
    assert not re.findall(r"""(?:src|href|action)=["']?(?:https?:)?/""", page)


def test_aligned_words_are_linked(client: Client) -> None:
    first, empty, long = client.post("/align", PAIRS).json()
    assert first == {"source": ["One", "dog."], "target": ["One", "dog."], "links": [[0, 0], [1, 1]]}
    assert empty == {"source": [], "target": [], "links": []}
    assert long["links"] == []


def test_the_attention_page_is_returned_for_a_form_and_for_json(client: Client) -> None:
    fields = {**PAIRS, "pairs": [["One dog.", "One dog."]]}
    answer = client.post("/attention", fields)
    assert answer.headers["content-type"].startswith("text/html")
    assert b"<title>Attention</title>" in answer.body
    assert client.form("/attention", {**fields, "pairs": '[["One dog.", "One dog."]]'}).body == answer.body


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"pairs": "[["}, 400),
        ({"pairs": [["a"]]}, 400),
        ({"pairs": [["a", 1]]}, 400),
        ({"source": "de", "target": "en"}, 400),
        ({"pairs": [["a", "a"]] * 21}, 413),
        ({"pairs": [["a" * 300, "a"]]}, 413),
    ],
    ids=str,
)
def test_pairs_that_cannot_be_drawn_are_refused(
    client: Client, changed: dict[str, object], status: int
) -> None:
    assert client.post("/attention", PAIRS | changed).status == status


@contextmanager
def listening(app: object) -> Iterator[str]:
    """Yield the address of a server with the application."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))  # type: ignore[arg-type]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def driven(browser: str, deno: str, tmp_path: Path) -> Iterator[Callable[..., list[Any]]]:
    """Yield a function that opens a page and returns the values of expressions, each once it is true."""
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
    command = [browser, *options, f"--user-data-dir={tmp_path}", "--remote-debugging-port=0", "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        port_file, end = tmp_path / "DevToolsActivePort", time.monotonic() + PATIENCE
        while not (port_file.exists() and port_file.read_text().strip()) and time.monotonic() < end:
            time.sleep(0.05)
        port = port_file.read_text().split()[0]

        def driven(address: str, *expressions: str) -> list[Any]:
            run = [deno, "run", "--no-config", "--allow-net", str(DRIVER), port, address, *expressions]
            output = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
            return [json.loads(line) for line in output.splitlines()]

        try:
            yield driven
        finally:
            process.terminate()


@pytest.mark.slow
def test_a_browser_translates_colours_words_and_reports_refusals(
    german: Model, serving: Serving, driven: Callable[..., list[Any]]
) -> None:
    client = serving({"copies": german}, most_characters=200)
    words = (
        "[...document.querySelectorAll('#{} .word')].map((word) => [word.textContent, word.style.cssText])"
    )
    with listening(client.app) as address:
        text = "One%20dog%20runs.%0A%0ATwo%20cats."
        _, shown, ours, theirs, partners, others = driven(
            f"{address}/#source=en&target=de&q={text}",
            "!byId('look').disabled",
            "byId('translation').textContent",
            words.format("translation"),
            words.format("mirror"),
            "document.querySelector('#translation .word').dispatchEvent(new Event('pointerenter')), "
            "[...document.querySelectorAll('.on')].map((one) => one.textContent)",
            "byId('more').firstChild.getAttribute('aria-pressed') === 'true' ? byId('list').textContent : "
            "(state.alternatives || byId('more').firstChild.click(), '')",
        )
        too_long = driven(
            f"{address}/?again#q={'a' * 201}", "document.querySelector('#status.wrong').textContent"
        )
    assert shown == "One dog runs.\n\nTwo cats."
    assert [word for word, _ in ours] == ["One", "dog", "runs.", "Two", "cats."]
    assert theirs == ours
    assert partners == ["One", "One"]
    assert others
    assert too_long == ["The text has 201 characters. Send at most 200 at a time."]
