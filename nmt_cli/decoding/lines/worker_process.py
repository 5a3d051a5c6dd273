"""A worker in a process of its own: of the threads of one process, Python lets only one run at a time.

The process is forked, so that it shares the weights' memory, and computes in one thread. It asks its parent
over a pipe for all that a turn offers, so that the queue itself stays in the parent.
"""

import multiprocessing
import signal
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.hypotheses import Hypothesis, Sentence
from nmt_cli.decoding.lines.worker import NextTurn, Turn, translate_turns
from nmt_cli.errors import UserError
from nmt_cli.machine.processes import child, obey_parent, portable
from nmt_cli.model.transformer import Transformer


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """The parent's side of a worker process."""

    process: BaseProcess
    connection: Connection

    def translate_turns(self, next_turn: NextTurn) -> None:
        """Give the process the turns it asks for, until there are no more; it takes turns only once."""
        turn: Turn | None = None
        while True:
            asked, told = self._receive()
            if asked == "turn":
                turn = next_turn()
                self._send(turn.search if turn else None)
                if turn is None:
                    return
            elif asked == "failed":
                raise told
            elif turn is not None:
                if asked == "take":
                    self._send(turn.take(*told))
                elif asked == "put back":
                    turn.put_back(told)
                elif asked == "finish":
                    turn.finish(*told)
                else:
                    turn.before_step()

    def kill(self) -> None:
        """End the process, whatever it is at; who waits for it notices."""
        self.process.kill()

    def _send(self, answer: object) -> None:
        with suppress(OSError):  # it is dead: what is received next says so
            self.connection.send(answer)

    def _receive(self) -> tuple[str, Any]:
        try:
            message: tuple[str, Any] = self.connection.recv()
        except (EOFError, OSError) as end:
            self.process.join()
            if self.process.exitcode != -signal.SIGKILL:
                code = self.process.exitcode
                raise UserError(f"a process that translates crashed, with exit code {code}.") from end
            raise UserError(
                "a process that translates was killed, most likely for want of memory; take fewer --threads, "
                "or fewer hypotheses at a time: --set search.rows=64."
            ) from end
        return message


@contextmanager
def worker_process(models: Sequence[Transformer]) -> Iterator[WorkerProcess]:
    """Start a process that translates with `models`; it is killed at the end."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    process = fork.Process(target=_serve, args=(theirs, models), daemon=True)
    with ExitStack() as stack:
        with warnings.catch_warnings():
            # It is about locks that other threads hold just now; the process takes none but its own.
            warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
            try:
                stack.enter_context(child(process, ours, theirs))
            except OSError as error:
                told = f"can't start a process for each of the --threads ({error.strerror}); take fewer."
                raise UserError(told) from error
        yield WorkerProcess(process, ours)


def _serve(connection: Connection, models: Sequence[Transformer]) -> None:
    """What the process does."""
    obey_parent()
    # The process has no other work. With more threads it would wait for those of its parent, which it lacks.
    torch.set_num_threads(1)
    try:
        translate_turns(models, lambda: _next_turn(connection))
    except BaseException as error:
        connection.send(("failed", portable(error)))


def _next_turn(connection: Connection) -> "_TurnOfParent | None":
    connection.send(("turn", None))
    search: SearchConfig | None = connection.recv()
    return _TurnOfParent(connection, search) if search else None


@dataclass(frozen=True, slots=True)
class _TurnOfParent:
    """The process's side of the parent's turn."""

    connection: Connection
    search: SearchConfig

    def take(self, slots: int, tokens: int, running: Sequence[Sentence]) -> list[Sentence]:
        """See `nmt_cli.decoding.engine.Queue`."""
        self.connection.send(("take", (slots, tokens, running)))
        sentences: list[Sentence] = self.connection.recv()
        return sentences

    def put_back(self, sentences: Sequence[Sentence]) -> None:
        """See `nmt_cli.decoding.engine.Queue`."""
        self.connection.send(("put back", sentences))

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """See `Turn`."""
        self.connection.send(("finish", (sentence, hypotheses)))

    def before_step(self) -> None:
        """See `Turn`."""
        self.connection.send(("step", None))
