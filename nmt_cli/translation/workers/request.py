"""The lines of one caller, from the reader thread until their translations are returned in order."""

import threading
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from nmt_cli.decoding.batch import take_longest
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.translation.lines import Line, line_number
from nmt_cli.translation.second_attempt import SecondAttempts


@dataclass(slots=True)
class Request:
    """The unreturned lines of one caller. Hold the lock of the queue to call any method."""

    number: int
    search: SearchConfig
    window: int
    """Maximum number of unreturned lines: how far the reader may be ahead of the output."""

    changed: threading.Condition
    """Notified when the caller or the reader may continue."""

    on_change: Callable[[], None]
    """Called whenever `changed` is notified, for callers with an event loop."""

    attempts: SecondAttempts | None = None
    """The sentences that are searched a second time, if the settings ask for it."""

    lines: dict[int, Line] = field(default_factory=dict)
    waiting: dict[int, list[Sentence]] = field(default_factory=dict)
    """Sentences that wait for a worker, by group. A group has the sentences of half a window of lines.
    Workers take the longest sentence of the lowest group. So no short line waits forever while the window
    keeps later lines out. Each list ascends in length. Among sentences of equal length the oldest is last."""

    hypotheses: dict[int, list[Hypothesis] | None] = field(default_factory=dict)
    """Hypotheses by sentence key, until the line is returned."""

    returned: int = 0
    """Number of lines whose translations the caller has received."""

    complete: bool = False
    """Whether the reader has added the last line."""

    error: BaseException | None = None
    """The error that ended the request. The caller gets it after the finished lines before it."""

    reader_error: BaseException | None = None
    """The error that ended the reading. The caller gets it after the translations of all lines before it."""

    unfinished: int = 0
    """Number of sentences that wait or are being translated."""

    reading: threading.RLock = field(default_factory=threading.RLock)
    """Held by the reader while it tokenizes a line. Closing the request waits for it."""

    closed: bool = False
    """Whether the caller has left. It is set without the lock of the queue."""

    def notify(self) -> None:
        """Wake the caller and the reader thread, and call `on_change`."""
        self.changed.notify_all()
        self.on_change()

    def fail(self, error: BaseException) -> None:
        """End the request with `error`, unless it has one already."""
        self.error = self.error or error
        self.notify()

    def add(self, line: Line) -> None:
        """Add `line` and queue its sentences. A line without sentences is finished, so wake the caller."""
        self.lines[line.number] = line
        self.unfinished += len(line.sentences)
        for sentence in line.sentences:
            self.put(replace(sentence, request=self.number))
        if not line.sentences:
            self.notify()

    def put(self, sentence: Sentence) -> None:
        """Add a sentence, new or returned by a worker, to its group of `waiting`, in order of length."""
        group = line_number(sentence) // max(1, self.window // 2)
        insort(self.waiting.setdefault(group, []), sentence, key=lambda one: (len(one.tokens), -one.key))

    def take(self, slots: int, tokens: int, running: Sequence[Sentence]) -> list[Sentence]:
        """Remove and return up to `slots` sentences of the lowest group, longest first. At least one must
        wait.

        With `running`, the batch then has at most `tokens` source tokens, padding included.
        """
        oldest = min(self.waiting)
        chosen = take_longest(self.waiting[oldest], slots, tokens, running)
        # The lowest group must have a sentence, whenever one waits.
        if not self.waiting[oldest]:
            del self.waiting[oldest]
        return chosen

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """Store the hypotheses of a sentence, or None if memory was too small. If the caller waits for its
        line, wake the caller."""
        self.hypotheses[sentence.key] = hypotheses
        self.unfinished -= 1
        # The caller takes lines in order, so a later line would wake it in vain.
        if line_number(sentence) == self.returned + 1:
            self.notify()

    @property
    def ended(self) -> bool:
        """True once all lines have been returned and no more will follow."""
        return self.complete and not self.lines
