"""The server process: socket, signals and event loop."""

import asyncio
import gc
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from nmt_cli.errors import EXIT_CODES, UserError
from nmt_cli.serving.app import application
from nmt_cli.serving.config import ServerConfig
from nmt_cli.serving.connections import CLIENT_SECONDS, Connection, RareReports, raise_file_limit
from nmt_cli.serving.directions import Directions
from nmt_cli.serving.keys import Keys
from nmt_cli.serving.models import Served
from nmt_cli.serving.service import Service
from nmt_cli.serving.store import opened_store
from nmt_cli.text.model_languages import listed

BACKLOG = 2048
UVICORN: dict[str, Any] = {
    "log_level": "critical",  # errors are about clients that do not read, warnings about what they send
    "access_log": False,
    "backlog": 16,  # connections that asyncio accepts before it can close one of them
    "lifespan": "off",
    "ws": "none",
    "timeout_keep_alive": 75,  # seconds: proxies should close idle connections first
}
SWITCH_SECONDS = 0.0005
"""Time for which a thread of Python keeps others waiting, in seconds. Python's default is 0.005."""

THREAD_SECONDS = 5.0
"""Time for threads to end after the last request, in seconds."""

DEATHS_SECONDS = 1.0
"""Time between two looks for workers that died, in seconds."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end the server. The terminal sends SIGHUP when it is closed."""


def serve(
    models: Mapping[str, Served],
    address: tuple[str, int],
    keys: Keys,
    config: ServerConfig,
    notify: Callable[[str], None],
) -> None:
    """Serve `models`, by name, until a signal.

    address: host and port.
    keys: the accepted API keys.
    notify: receives a line at the start, at a signal and at the end.

    Connections are accepted once the loaded models are ready. After one of `SIGNALS`, accepted requests are
    answered first. A second signal ends the process at once. SIGHUP never does, and has no effect if it was
    ignored at the start, as by nohup. Raise `UserError` for an address or a folder that cannot be used, and
    for two models of one direction.
    """
    directions = Directions(models, config.pivot)
    for served in models.values():
        if served.model:
            served.model.start()  # before other threads start, since workers may be forked
    with ExitStack() as stack:
        store = stack.enter_context(opened_store(config.folder))
        app = application(Service(directions, config, store), keys)
        gc.freeze()  # collecting these permanent objects would delay requests
        # The event loop waits this long for a thread that cuts a document, several times per sentence.
        sys.setswitchinterval(SWITCH_SECONDS)
        # Last, so that no client connects before all else is ready.
        listening = stack.enter_context(_listening(address, config.share_port))
        host, port = listening.getsockname()[:2]
        where = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        notify(f"{listed(directions.pairs)} at {where} (Ctrl-C to stop)")
        asyncio.run(_serve(app, listening, config.most_seconds, [*models.values()], notify))
        with suppress(OSError):
            notify(f"{app.answered:,} requests were answered.")


class _Server(uvicorn.Server):
    """A server that does not handle signals. Uvicorn would raise signals again and lose the exit code."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing, unlike uvicorn, which would install its signal handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server. Then raise the backlog of its sockets to `BACKLOG`."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(BACKLOG)  # asyncio has set uvicorn's backlog
        _report_ready()

    async def on_tick(self, counter: int) -> bool:
        """Return whether the server should exit. Uvicorn calls this ten times per second. Once per second,
        close connections of slow clients."""
        if counter % 10 == 0:
            for connection in [*self.server_state.connections]:
                if isinstance(connection, Connection):
                    connection.end_if_late()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait until all accepted requests are answered, or until their time ends. Then close the rest. A
        client has `CLIENT_SECONDS` to send the remaining body of its request."""
        asyncio.get_running_loop().call_later(CLIENT_SECONDS, self._drop_incomplete_requests)
        await super().shutdown(sockets)
        for connection in [*self.server_state.connections]:
            connection.transport.abort()

    def _drop_incomplete_requests(self) -> None:
        for connection in [*self.server_state.connections]:
            if isinstance(connection, Connection) and connection.owes_body:
                connection.transport.abort()


def _report_ready() -> None:
    """Tell systemd that the server accepts connections, if it waits for that (`Type=notify`)."""
    # Otherwise systemctl restart returns some seconds before the server listens. Restarting two processes one
    # after the other then refused all connections for a while.
    if path := os.environ.get("NOTIFY_SOCKET"):
        address = path.replace("@", "\0", 1) if path.startswith("@") else path
        # Systemd itself reports a service that is never ready.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.sendto(b"READY=1", address)


def uvicorn_server(app: ASGIApp, limit: int, seconds: float, report: RareReports) -> uvicorn.Server:
    """Return a server for `app` with up to `limit` connections.

    At its end, it waits for requests of up to `seconds`, and then drops clients that do not read. `report`
    prints errors of connections.
    """
    protocol: Any = partial(Connection, limit, report)
    patience = math.ceil(seconds + CLIENT_SECONDS)
    return _Server(uvicorn.Config(app, http=protocol, timeout_graceful_shutdown=patience, **UVICORN))


async def _report_deaths(models: Sequence[Served], report: RareReports) -> None:
    """Report each worker process that died and was replaced, for each model at most once a minute."""
    seen: dict[Served, int] = {}
    while True:
        await asyncio.sleep(DEATHS_SECONDS)
        for one in models:
            restarts = one.model.restarts if one.model else 0
            if one.model and restarts > seen.get(one, 0):
                report(
                    f"death {one.name}", f"Warning: replaced a worker of {one.name}: {one.model.last_death}"
                )
            seen[one] = restarts


async def _serve(
    app: ASGIApp,
    listening: socket.socket,
    seconds: float,
    models: Sequence[Served],
    notify: Callable[[str], None],
) -> None:
    """Install signal handlers. Serve `app` until a signal arrives and all accepted requests are answered.
    Report deaths of workers of `models`. `seconds` is the time limit of a request."""
    report = RareReports()
    server = uvicorn_server(app, raise_file_limit(), seconds, report)

    def end(number: signal.Signals) -> None:
        if server.should_exit:
            if number == signal.SIGHUP:  # a shell and its terminal may both send it
                return
            os._exit(EXIT_CODES[number])  # the workers notice and end too
        server.should_exit = True
        with suppress(OSError):  # after SIGHUP, the terminal may be gone
            notify("ending once the accepted requests are answered. A second signal ends at once.")

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report.of_loop)
    for number in SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end, number)
    reporting = asyncio.create_task(_report_deaths(models, report))
    await server.serve([listening])
    reporting.cancel()
    # No request is left, but asyncio and Python would wait for threads, whatever they do.
    last = threading.Timer(THREAD_SECONDS, os._exit, [0])
    last.daemon = True
    last.start()


def _listening(address: tuple[str, int], shared: bool) -> socket.socket:
    """Return a socket that listens at `address`, host and port. Port 0 means any free port.

    If `shared`, other processes may listen on the same port. Raise `UserError` for an invalid host, or a port
    that is in use.
    """
    host, port = address
    try:
        family, *_, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()  # "::" then accepts IPv4, too
        return socket.create_server(
            target, family=family, backlog=BACKLOG, reuse_port=shared, dualstack_ipv6=dual
        )
    except socket.gaierror as error:
        raise UserError(f"--host {host}: {error.strerror}. Use a name or address of this machine.") from error
    except UnicodeError as error:  # from the encoding of host names
        raise UserError(f"--host {host}: each part of a host name has 1 to 63 letters.") from error
    except OSError as error:
        reason = os.strerror(error.errno or 0)  # without the address that Python adds
        raise UserError(f"cannot listen on {host}:{port}: {reason}. Use another --port.") from error
