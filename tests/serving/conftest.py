"""Models to serve, and a client that calls the application without a server."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.types import ASGIApp, Message

from nmt_cli.api import InputConfig, Model, TranslateConfig, load
from nmt_cli.serving.app import Middleware, application
from nmt_cli.serving.config import ServerConfig
from nmt_cli.serving.connections import RareReports
from nmt_cli.serving.directions import Directions
from nmt_cli.serving.keys import Keys
from nmt_cli.serving.models import Served
from nmt_cli.serving.server import uvicorn_server
from nmt_cli.serving.service import Service
from nmt_cli.serving.store import Store

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
PATIENCE = 60.0
"""Seconds after which a test fails that waits for the server."""

SPLIT = TranslateConfig(input=InputConfig(sentences="split"))


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[str]:
        """Return the data of each event."""
        return [one.removeprefix("data: ") for one in self.body.decode().split("\n\n") if one]


@dataclass(slots=True)
class Client:
    """A client of an application, with its own event loop."""

    app: ASGIApp
    service: Service
    runner: asyncio.Runner = field(default_factory=asyncio.Runner)

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, b"", headers)

    def post(self, path: str, fields: object, **headers: str) -> Answer:
        return self.send("POST", path, json.dumps(fields).encode(), {"content-type": JSON, **headers})

    def form(self, path: str, fields: object, **headers: str) -> Answer:
        body = urlencode(fields, doseq=True).encode()  # type: ignore[arg-type]  # a mapping, or pairs
        return self.send("POST", path, body, {"content-type": FORM, **headers})

    def send(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], stays: bool = True
    ) -> Answer:
        """Send a request, and return the answer. Without `stays`, disconnect after the body."""
        return self.runner.run(ask(self.app, method, path, body, headers, stays))


Serving = Callable[..., Client]
"""The type of the fixture `serving`."""


async def ask(
    app: ASGIApp,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    stays: bool = True,
) -> Answer:
    """Return the response of the application to a request. The status is 0 if there is no response."""
    path, _, query = path.partition("?")
    names = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "headers": [(name.encode(), value.encode()) for name, value in names.items()],
        "server": ("127.0.0.1", 5000),
        "client": ("127.0.0.1", 1),
    }
    requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    messages: list[Message] = []

    async def receive() -> Message:
        if not requests and stays:
            await asyncio.Event().wait()
        return requests.pop() if requests else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, send)
    if not messages:
        return Answer(0, {}, b"")
    headers_received = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    return Answer(
        messages[0]["status"], headers_received, b"".join(one.get("body", b"") for one in messages[1:])
    )


def soon(holds: Callable[[], bool]) -> bool:
    """Return whether `holds` becomes true within `PATIENCE`."""
    end = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < end:
        time.sleep(0.001)
    return holds()


@contextmanager
def listening(app: ASGIApp, limit: int = 100, seconds: float = PATIENCE) -> Iterator[tuple[str, int]]:
    """Yield the host and port of a server with the application, for up to `limit` connections. At its
    end, it waits for requests of up to `seconds`."""
    report = RareReports()
    server = uvicorn_server(app, limit, seconds, report)

    async def serve(listening: socket.socket) -> None:
        asyncio.get_running_loop().set_exception_handler(report.of_loop)
        await server.serve([listening])

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=lambda: asyncio.run(serve(listening)))
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="session")
def german(made_models: Path) -> Iterator[Model]:
    """Yield an English-German model that copies its source, at most 63 characters at a time."""
    with load(made_models / "copies", device="cpu", threads=1, config=SPLIT) as model:
        model.translate(["a"])  # compiling kernels may take longer than a test waits
        yield model


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Yield a function that returns a client of an application: `serving(models, keys=…, setting=…)`."""
    clients: list[Client] = []

    def serving(models: Mapping[str, Model | Served], keys: Keys | None = None, **settings: Any) -> Client:
        config = ServerConfig(**settings)
        served = {
            name: one if isinstance(one, Served) else Served(one.tokenizers.recipe, one.__enter__, model=one)
            for name, one in models.items()
        }
        store = Store(Path(config.folder or tmp_path_factory.mktemp("store")))
        service = Service(Directions(served, config.pivot), config, store)
        app: Middleware = application(service, keys or Keys())
        clients.append(Client(app, service))
        return clients[-1]

    yield serving
    for client in clients:
        client.runner.close()


@pytest.fixture(scope="session")
def client(german: Model, serving: Serving) -> Client:
    return serving({"copies": german})
