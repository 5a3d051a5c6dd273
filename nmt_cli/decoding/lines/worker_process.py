"""The search in a process of its own: of the threads of one process, Python lets but one think at a time.

The process is forked, so that it has the weights without a copy, and computes in one thread. It asks its
parent for sentences over a pipe, and tells of each step and of what it finds.
"""

import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.engine import Found, Waiting, translated
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.hypotheses import Sentence
from nmt_cli.errors import UserError
from nmt_cli.machine.processes import child, obey_parent, portable

Work = Callable[[Waiting, Callable[[], None]], Iterator[Found]]
"""As `translated`, of what waits."""


@contextmanager
def apart(ensemble: Ensemble, config: SearchConfig) -> Iterator[Work]:
    """What does as `translated`, once, in a process that is killed at the end."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    process = fork.Process(target=_serve, args=(theirs, ensemble, config), daemon=True)
    with ExitStack() as stack:
        with warnings.catch_warnings():
            # It is about locks that other threads hold just now; there is none but that of a progress bar.
            warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
            try:
                stack.enter_context(child(process, ours, theirs))
            except OSError as error:
                told = f"can't start a process for each of the --threads ({error.strerror}); take fewer."
                raise UserError(told) from error
        yield partial(_answered, ours, process)


def _answered(
    there: Connection, process: BaseProcess, waiting: Waiting, before_step: Callable[[], None]
) -> Iterator[Found]:
    while True:
        what, told = _heard(there, process)
        if what == "take":
            with suppress(OSError):  # it is dead: that is heard next
                there.send(waiting.take(*told))
        elif what == "put back":
            waiting.put_back(told)
        elif what == "step":
            before_step()
        elif what == "found":
            yield told
        elif told:
            raise told
        else:
            return


def _heard(there: Connection, process: BaseProcess) -> tuple[str, Any]:
    try:
        told: tuple[str, Any] = there.recv()
    except (EOFError, OSError) as end:
        process.join()
        if process.exitcode != -signal.SIGKILL:
            raise UserError(f"a process that translates crashed, with exit code {process.exitcode}.") from end
        raise UserError(
            "a process that translates was killed, most likely for want of memory; take fewer --threads, "
            "or fewer hypotheses at a time: --set search.rows=64."
        ) from end
    return told


class _Parent:
    """What waits there, and whom to tell."""

    def __init__(self, connection: Connection) -> None:
        self.tell = connection.send
        self._hear = connection.recv

    def take(self, most: int, tokens: int, beside: Sequence[Sentence]) -> list[Sentence]:
        """See `Waiting`."""
        self.tell(("take", (most, tokens, beside)))
        sentences: list[Sentence] = self._hear()
        return sentences

    def put_back(self, sentences: Sequence[Sentence]) -> None:
        """See `Waiting`."""
        self.tell(("put back", sentences))


def _serve(connection: Connection, ensemble: Ensemble, config: SearchConfig) -> None:
    obey_parent()
    torch.set_num_threads(1)
    parent = _Parent(connection)
    try:
        for found in translated(ensemble, config, parent, lambda: parent.tell(("step", None))):
            parent.tell(("found", found))
        parent.tell(("done", None))
    except BaseException as error:
        parent.tell(("done", portable(error)))
