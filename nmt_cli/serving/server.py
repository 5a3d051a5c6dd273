"""The server itself: it listens once all can be answered, and ends when all that it took in is answered."""

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from nmt_cli.api import Model
from nmt_cli.errors import EXIT_CODES, UserError
from nmt_cli.serving.app import application
from nmt_cli.serving.config import ServerConfig
from nmt_cli.serving.connections import Connection, RareReports, raise_file_limit
from nmt_cli.serving.directions import Directions
from nmt_cli.serving.keys import Keys
from nmt_cli.serving.translating import Desk

BACKLOG = 2048
UVICORN: dict[str, Any] = {
    "log_level": "error",  # warnings are about what clients send
    "access_log": False,
    "backlog": 16,  # connections that asyncio accepts before it can close one
    "lifespan": "off",
    "ws": "none",
    "timeout_keep_alive": 75,  # longer than proxies keep one that nobody uses, or they would meet its end
}
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def serve(
    models: Mapping[str, Model],
    address: tuple[str, int],
    keys: Keys,
    config: ServerConfig,
    tell: Callable[[str], None],
) -> None:
    """Answer requests for these models, by name, until a signal asks for the end; `tell` is told of both.

    The first signal lets requests that were taken in be answered, a second one ends the process at once.
    """
    directions = Directions(models, config.pivot)
    for model in models.values():
        model.start()  # before there are other threads, as some of them are forked
    app = application(Desk(directions, config), keys)
    gc.freeze()  # all there is by now stays: looking through it for garbage keeps requests waiting
    with _listening(address, config.share_port) as listening:
        host, port = listening.getsockname()[:2]
        told = ", ".join(dict.fromkeys(one.name for one in directions.named.values()))
        tell(f"{told} at http://{f'[{host}]' if ':' in host else host}:{port}/; Ctrl-C ends.")
        asyncio.run(_serve(app, listening, tell))
        tell(f"{app.answered:,} requests were answered.")


class _Server(uvicorn.Server):
    """Leaves signals to us: Uvicorn would send them again when it has ended, and so lose the exit code."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """See Uvicorn."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See Uvicorn."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(BACKLOG)  # asyncio has set it to uvicorn's

    async def on_tick(self, counter: int) -> bool:
        """See Uvicorn."""
        if counter % 10 == 0:  # once a second
            for connection in [*self.server_state.connections]:
                if isinstance(connection, Connection):
                    connection.end_if_late()
        return await super().on_tick(counter)


def uvicorn_server(app: ASGIApp, limit: int, report: RareReports) -> uvicorn.Server:
    """Return a server for `app` with up to `limit` connections."""
    protocol: Any = partial(Connection, limit, report)
    return _Server(uvicorn.Config(app, http=protocol, **UVICORN))


async def _serve(app: ASGIApp, listening: socket.socket, tell: Callable[[str], None]) -> None:
    report = RareReports()
    server = uvicorn_server(app, raise_file_limit(), report)

    def end(number: signal.Signals) -> None:
        if server.should_exit:
            os._exit(EXIT_CODES[number])  # the workers see it, and end too
        server.should_exit = True
        tell("ending: what was taken in is translated first; a second signal ends at once.")

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report.of_loop)
    for number in SIGNALS:
        loop.add_signal_handler(number, end, number)
    await server.serve([listening])


def _listening(address: tuple[str, int], shared: bool) -> socket.socket:
    """Return a socket that listens at this address."""
    host, port = address
    found = None
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind(place)
        found.listen(BACKLOG)
    except socket.gaierror as error:
        raise UserError(
            f"--host {host}: {error.strerror}; give a name or address of this machine."
        ) from error
    except UnicodeError as error:  # from the encoding of host names
        raise UserError(f"--host {host}: each part of a name has 1 to 63 letters.") from error
    except OSError as error:
        if found:
            found.close()
        raise UserError(
            f"{host}:{port} can't be listened at: {error.strerror}; name another --port."
        ) from error
    return found
