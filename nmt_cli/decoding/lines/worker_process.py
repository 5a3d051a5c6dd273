"""A worker in a process of its own, since Python runs only one of a process's threads at a time.

The process is forked, so that all workers share the memory of the weights, and computes with one thread. The
queue stays in the parent: the process sends a message over a pipe for each method of a turn, and a thread of
the parent calls that method and sends the result back.
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
        """Answer the process, which runs `worker.translate_turns`, until there are no more turns; to be
        called once."""
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
        """End the process at once; a thread in `translate_turns` then gets an error."""
        self.process.kill()

    def _send(self, answer: object) -> None:
        with suppress(OSError):  # the process is dead: `_receive` says so next
            self.connection.send(answer)

    def _receive(self) -> tuple[str, Any]:
        try:
            message: tuple[str, Any] = self.connection.recv()
        except (EOFError, OSError) as end:
            # For its exit code. SIGKILL is what the system sends where memory runs out.
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
    """Start a process that translates with `models`; it is killed at the end of the block."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    process = fork.Process(target=_serve, args=(theirs, models), daemon=True)
    with ExitStack() as stack:
        with warnings.catch_warnings():
            # The warning is of locks that other threads hold just now, which stay locked in the child; but
            # the child takes none but those it makes itself.
            warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
            try:
                stack.enter_context(child(process, ours, theirs))
            except OSError as error:
                told = f"can't start a process for each of the --threads ({error.strerror}); take fewer."
                raise UserError(told) from error
        yield WorkerProcess(process, ours)


def _serve(connection: Connection, models: Sequence[Transformer]) -> None:
    """The worker process: translate turns until the parent has no more, and report an error to it."""
    obey_parent()
    # All of this process computes with one thread. Those of PyTorch's pool did not survive the fork, and it
    # would wait for them for ever.
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
    """A turn whose methods are calls to the parent, over the pipe."""

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
