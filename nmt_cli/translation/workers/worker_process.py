"""A worker in a process of its own, since Python runs only one of a process's threads at a time.

The process is forked, so that all workers share the memory of the weights, and computes with one thread; with
several while the others have nothing to do. The queue stays in the parent: the process sends a message over a
pipe for each method of a turn, and a thread of the parent calls that method and sends the result back. Where
the process dies, another takes its place, and what it was translating goes back into the queue.
"""

import multiprocessing
import signal
import threading
import warnings
from collections.abc import Collection, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.processes import child, let_go_of_sockets, obey_parent, portable
from nmt_cli.translation.workers.counts import Counts
from nmt_cli.translation.workers.worker import NextTurn, Turn, translate_turns

STARTING = threading.RLock()
"""Held while a process is forked, or found dead. One that is forked by another thread just then would inherit
the ends of our pipes and keep them open, and the death of our process would not be noticed."""

MOST_DEATHS_IDLE = 3
"""So many in a row may die before they have taken anything to translate; then no other is started."""

WARNING = ".*multi-threaded.*fork"
"""Of locks that other threads hold just now, which stay locked in the child; but the child takes none but
those it makes itself."""


class WorkerProcess:
    """The parent's side of a worker process, and of those that follow it."""

    def __init__(self, models: Sequence[Transformer], counts: Counts, threads: int = 1) -> None:
        """`counts` are those of the queue that the turns are of; see `worker.translate_turns` for
        `threads`."""
        self._models, self._counts, self._threads = models, counts, threads
        self.restarts = 0
        """How many processes died and were replaced."""

        self._closed = False
        self._idle_deaths = 0
        self._turn: Turn | None = None
        self._held: dict[Hashable, Sentence] = {}
        """What the process is translating."""

        with STARTING:
            self._start()

    def translate_turns(self, next_turn: NextTurn) -> None:
        """Answer the process, which runs `worker.translate_turns`, until there are no more turns; to be
        called once."""
        while True:
            try:
                asked, told = self.connection.recv()
            except (EOFError, OSError):
                if self._closed:  # by a thread that may hold the lock and wait for this one
                    raise UserError("the model was closed.") from None
                self._replace()
                continue
            if asked == "turn":
                self._turn = next_turn()
                if not self.process.is_alive():  # killed while it waited, so it may have been a good one
                    self._idle_deaths = 0
                self._send(self._turn.search if self._turn else None)
                if self._turn is None:
                    return
            elif asked == "failed":
                raise told
            elif self._turn is not None:
                self._answer(self._turn, asked, told)

    def kill(self) -> None:
        """End the process at once and for good; a thread in `translate_turns` then gets an error."""
        with STARTING:
            self._closed = True
            self.process.kill()

    def close(self) -> None:
        """The same, and wait until it has ended."""
        self.kill()
        self._stack.close()

    def _answer(self, turn: Turn, asked: str, told: Any) -> None:
        if asked == "take":
            taken = turn.take(*told)
            self._held |= {sentence.identity: sentence for sentence in taken}
            self._send(taken)
        elif asked == "put back":
            self._let_go(told)
            turn.put_back(told)
        elif asked == "finish":
            self._let_go([told[0]])
            self._idle_deaths = 0
            turn.finish(*told)
        else:
            places = turn.gone(told)
            self._let_go([told[place] for place in places])
            self._send(places)

    def _let_go(self, sentences: Sequence[Sentence]) -> None:
        for sentence in sentences:
            self._held.pop(sentence.identity, None)

    def _send(self, answer: object) -> None:
        with suppress(OSError):  # the process is dead: the next to be received says so
            self.connection.send(answer)

    def _replace(self) -> None:
        """Start another process in place of one that died, and return what it was translating."""
        with STARTING:
            self.process.join()  # for its exit code
            how = _told(self.process.exitcode)
            self._idle_deaths = 0 if self._held else self._idle_deaths + 1
            if self._closed or self._idle_deaths >= MOST_DEATHS_IDLE:
                raise UserError(how)
            self._stack.close()
            self._start()
            self.restarts += 1
        held, self._held = [*self._held.values()], {}
        if held and self._turn:
            self._turn.lost(held, how)

    def _start(self) -> None:
        fork = multiprocessing.get_context("fork")
        ours, theirs = fork.Pipe()
        arguments = (theirs, self._models, self._counts, self._threads)
        process = fork.Process(target=_serve, args=arguments, daemon=True)
        with ExitStack() as stack, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=WARNING, category=DeprecationWarning)
            try:
                stack.enter_context(child(process, ours, theirs))
            except OSError as error:
                told = f"can't start a process for each of the --threads ({error.strerror}); take fewer."
                raise UserError(told) from error
            self.process, self.connection, self._stack = process, ours, stack.pop_all()
        if self._closed:  # by the garbage collector, meanwhile
            process.kill()


def _told(code: int | None) -> str:
    # SIGKILL is what the system sends where memory runs out.
    if code != -signal.SIGKILL:
        return f"a process that translates crashed, with exit code {code}."
    return (
        "a process that translates was killed, most likely for want of memory; take fewer --threads, or "
        "fewer hypotheses at a time: --set search.rows=64."
    )


def _serve(connection: Connection, models: Sequence[Transformer], counts: Counts, threads: int) -> None:
    """The worker process: translate turns until the parent has no more, and report an error to it."""
    let_go_of_sockets([connection.fileno()])
    obey_parent()
    # The thread that was forked has a pool whose threads did not survive that, and OpenMP would wait for them
    # for ever; a new thread has none.
    with ThreadPoolExecutor(1) as alone:
        alone.submit(_work, connection, models, counts, threads).result()


def _work(connection: Connection, models: Sequence[Transformer], counts: Counts, threads: int) -> None:
    torch.set_num_threads(1)
    try:
        translate_turns(models, lambda: _next_turn(connection, counts), threads)
    except BaseException as error:
        connection.send(("failed", portable(error)))


def _next_turn(connection: Connection, counts: Counts) -> "_TurnOfParent | None":
    connection.send(("turn", None))
    seen = counts.departures.value
    search: SearchConfig | None = connection.recv()
    return _TurnOfParent(connection, search, counts, seen) if search else None


@dataclass(slots=True)
class _TurnOfParent:
    """A turn whose methods are calls to the parent, over the pipe."""

    connection: Connection
    search: SearchConfig
    counts: Counts
    seen: int
    """What `departures` was when the parent was last asked who is gone."""

    refused: tuple[int, int] | None = None
    """What `arrivals` was, and how many were running, when the parent last had nothing to give."""

    def take(self, slots: int, tokens: int, running: Sequence[Sentence]) -> list[Sentence]:
        """See `nmt_cli.decoding.engine.Queue`."""
        # Asking costs both sides some tenths of a millisecond, more where the parent is busy, and most steps
        # would ask in vain: nothing new waits, and nobody has left who was in the way of what does.
        now = (self.counts.arrivals.value, len(running))
        if now == self.refused:
            return []
        self.connection.send(("take", (slots, tokens, running)))
        sentences: list[Sentence] = self.connection.recv()
        self.refused = None if sentences else now
        return sentences

    def alone(self, count: int) -> bool:
        """See `Turn`."""
        return self.counts.unfinished.value == count

    def put_back(self, sentences: Sequence[Sentence]) -> None:
        """See `nmt_cli.decoding.engine.Queue`."""
        self.connection.send(("put back", sentences))

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """See `Turn`."""
        self.connection.send(("finish", (sentence, hypotheses)))

    def gone(self, running: Sequence[Sentence]) -> Collection[int]:
        """See `Turn`."""
        # In nearly all steps nobody has left, and nothing need be asked.
        if (departures := self.counts.departures.value) == self.seen:
            return ()
        self.seen = departures
        self.connection.send(("gone", running))
        places: Collection[int] = self.connection.recv()
        return places

    def lost(self, sentences: Sequence[Sentence], how: str) -> None:
        """See `Turn`; never called, as this process can't outlive itself."""
        raise NotImplementedError
