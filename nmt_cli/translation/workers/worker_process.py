"""A worker in its own process, since Python runs only one thread of a process at a time.

For a CPU, the process is forked, so that all workers share the memory of the weights. For a GPU, it is
spawned, and loads the models itself. The queue stays in the parent. For each method of the queue, the process
sends a message over a pipe. One thread of the parent calls the method and sends the result back. If the
process dies, another one replaces it and its sentences return to the queue.
"""

import signal
import threading
import warnings
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from typing import Any

import torch

from nmt_cli.decoding.batch import Queue
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.errors import UserError
from nmt_cli.runtime.processes import StartMethod, child, close_sockets, obey_parent, portable
from nmt_cli.translation.workers.worker import Counts, Load, NextSearch, translate_turns

STARTING = threading.RLock()
"""Held while a process is started or found dead. A process that another thread forks at this moment would
inherit our ends of the pipes and keep them open. The death of our process would then go unnoticed."""

MAX_IDLE_DEATHS = 3
"""If this number of processes in a row dies before taking a sentence, no further one is started."""

FORK_WARNING = ".*multi-threaded.*fork"
"""Python warns about locks that other threads hold, which stay locked in the child. The child takes only
locks that it creates itself."""


Identity = tuple[int, int]
"""What the two sides of the pipe call a sentence: `Sentence.identity`. It is shorter than the sentence."""

Lost = Callable[[Sequence[Sentence], str], None]
"""Returns the sentences of a process that died to the queue. The text is the cause of death."""

KILLED = (
    "a translation process was killed, most likely because memory ran out. Use fewer --threads or "
    "smaller batches, for example --set search.rows=64."
)
"""The cause of death after SIGKILL, which the system sends when memory runs out."""


class WorkerProcess:
    """The parent's side of a worker process. If the process dies, another process replaces it."""

    def __init__(self, load: Load, start: StartMethod, counts: Counts, lost: Lost, threads: int = 1) -> None:
        """Start the process.

        load: returns the models. The process calls it.
        counts: the counters of the queue.
        lost: is called with the sentences of the process if it dies.
        threads: the maximum number of threads that share the work of few unfinished sentences.

        Raise `UserError` if the system refuses a process.
        """
        self._work = start, _serve, load, counts, threads
        self._lost = lost
        self.restarts = 0
        """Number of processes that died and were replaced."""

        self.last_death = ""
        """Why the latest of these died."""

        self._closed = False
        self._idle_deaths = 0
        self._search: SearchConfig | None = None
        """The settings of the current turn."""

        self._held: dict[Identity, Sentence] = {}
        """The sentences that the process is translating. It names them by their identities."""

        with STARTING:
            self._start()

    def translate_turns(self, next_search: NextSearch, queue: Queue) -> None:
        """Let the process translate the sentences of `queue` until `next_search` returns None. Call once.

        Replace the process if it dies. Raise errors of the process. Raise `UserError` after `kill`, or if
        replacement fails.
        """
        while True:
            try:
                message, value = self.connection.recv()
            except (EOFError, OSError):
                if self._closed:  # by a thread that may hold the lock and wait for this one
                    raise UserError("the model was closed.") from None
                self._replace()
                continue
            if message == "next":
                self._search = next_search()
                if not self.process.is_alive():  # killed while it waited, so its sentences were not the cause
                    self._idle_deaths = 0
                self._send(self._search)
                if self._search is None:
                    return
            elif message == "failed":
                raise value
            elif self._search is not None:
                self._answer(queue, self._search, message, value)

    def kill(self) -> None:
        """Kill the process without replacing it. A thread in `translate_turns` then raises `UserError`."""
        with STARTING:
            self._closed = True
            self.process.kill()

    def close(self) -> None:
        """Kill the process without replacing it, and wait until the process has ended."""
        self.kill()
        self._stack.close()

    def _answer(self, queue: Queue, search: SearchConfig, message: str, value: Any) -> None:
        """Call the method of `queue` that `message` names with `value`. Send back the result of `take` and
        `gone`.

        Sentences that the process no longer has are forgotten, so that its death does not return them to the
        queue.
        """
        if message == "take":
            slots, tokens, running = value
            sentences = queue.take(search, slots, tokens, [self._held[one] for one in running])
            self._held |= {sentence.identity: sentence for sentence in sentences}
            self._send(sentences)
        elif message == "put back":
            queue.put_back([self._held.pop(one) for one in value])
        elif message == "finish":
            self._idle_deaths = 0
            identity, hypotheses = value
            queue.finish(self._held.pop(identity), hypotheses)
        else:
            indices = queue.gone([self._held[one] for one in value])
            for index in indices:
                del self._held[value[index]]
            self._send(indices)

    def _send(self, result: object) -> None:
        with suppress(OSError):  # the process is dead, as the next `recv` will show
            self.connection.send(result)

    def _replace(self) -> None:
        """Start a process in place of the dead one, and return its sentences to the queue.

        Raise `UserError` after `kill`, and if `MAX_IDLE_DEATHS` processes in a row have died without a
        sentence.
        """
        with STARTING:
            self.process.join()  # for its exit code
            code = self.process.exitcode  # negative for a signal
            cause = (
                KILLED if code == -signal.SIGKILL else f"a translation process crashed with exit code {code}."
            )
            self._idle_deaths = 0 if self._held else self._idle_deaths + 1
            if self._closed or self._idle_deaths >= MAX_IDLE_DEATHS:
                raise UserError(cause)
            self._stack.close()
            self._start()
            self.last_death = cause
            self.restarts += 1
        sentences, self._held = [*self._held.values()], {}
        if sentences:
            self._lost(sentences, cause)

    def _start(self) -> None:
        """Start a process and connect to it. Raise `UserError` if the system refuses the process."""
        with ExitStack() as stack, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=FORK_WARNING, category=DeprecationWarning)
            try:
                self.process, self.connection = stack.enter_context(child(*self._work))
            except OSError as error:
                message = f"cannot start a process for each worker: {error.strerror}. Use fewer --threads."
                raise UserError(message) from error
            self._stack = stack.pop_all()
        if self._closed:  # by the garbage collector, meanwhile
            self.process.kill()


def _serve(connection: Connection, load: Load, counts: Counts, threads: int) -> None:
    """Translate in the worker process until the parent has no more turns. Send errors to the parent."""
    close_sockets([connection.fileno()])
    obey_parent()
    # A forked thread has an OpenMP pool whose threads do not exist in this process, and OpenMP would
    # wait for them forever. A new thread has no pool.
    with ThreadPoolExecutor(1) as executor:
        executor.submit(_work, connection, load, counts, threads).result()


def _work(connection: Connection, load: Load, counts: Counts, threads: int) -> None:
    """Translate turns, with up to `threads` threads. Send an error to the parent instead of raising."""

    queue = _ParentQueue(connection, counts)
    torch.set_num_threads(1)
    try:
        translate_turns(load, queue.next_search, queue, counts, threads)
    except BaseException as error:
        # If the parent was killed, its end of the pipe is closed, and this process ends without a traceback.
        with suppress(OSError):
            connection.send(("failed", portable(error)))


class _ParentQueue:
    """The queue of the parent in the worker process. Each method sends a message to the parent."""

    def __init__(self, connection: Connection, counts: Counts) -> None:
        self._connection, self._counts = connection, counts
        self._refused: tuple[int, int] | None = None
        """The number of arrivals and the size of the batch when `take` last returned no sentences."""

        self._departures = counts.departures.value
        """The number of departures at the last call of `gone`."""

    def next_search(self) -> SearchConfig | None:
        """Return the settings of the next turn, or None once the queue is closed."""
        self._refused = None  # other settings may have been the reason
        self._connection.send(("next", None))
        search: SearchConfig | None = self._connection.recv()
        return search

    def take(
        self, config: SearchConfig, slots: int, tokens: int, running: Sequence[Sentence]
    ) -> list[Sentence]:
        """Return sentences to join `running`. Do not ask the parent if its last answer [] still holds."""
        # A message costs both sides some tenths of a millisecond, and more if the parent is busy. Most
        # messages would be in vain, since no sentence has arrived or left the batch.
        state = (self._counts.arrivals.value, len(running))
        if state == self._refused:
            return []
        self._connection.send(("take", (slots, tokens, _identities(running))))
        sentences: list[Sentence] = self._connection.recv()
        self._refused = None if sentences else state
        return sentences

    def put_back(self, sentences: Sequence[Sentence]) -> None:
        """Return sentences to the queue."""
        self._connection.send(("put back", _identities(sentences)))

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """Send the hypotheses of a sentence."""
        self._connection.send(("finish", (sentence.identity, hypotheses)))

    def gone(self, running: Sequence[Sentence]) -> Collection[int]:
        """Return the indices in `running` of sentences whose requests were closed."""
        departures = self._counts.departures.value
        if departures == self._departures:  # no need to ask before each step
            return ()
        self._departures = departures
        self._connection.send(("gone", _identities(running)))
        indices: Collection[int] = self._connection.recv()
        return indices


def _identities(sentences: Sequence[Sentence]) -> list[Identity]:
    return [sentence.identity for sentence in sentences]
