"""One caller's lines on their way: read, waiting for a worker, translated, and given back in order."""

import threading
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.engine import take_longest
from nmt_cli.decoding.hypotheses import Hypothesis, Sentence
from nmt_cli.decoding.lines.translator import PARTS, Line


@dataclass(frozen=True, slots=True)
class Queued(Sentence):
    """A sentence that knows whose it is; its key is unique in the request only."""

    request: int = 0


@dataclass(slots=True)
class Request:
    """The lines between a caller's input and output; only used under the lock of the queue it is in."""

    number: int
    search: SearchConfig
    window: int
    """Most lines that are here at a time."""

    lines: dict[int, Line] = field(default_factory=dict)
    waiting: dict[int, list[Sentence]] = field(default_factory=dict)
    """Sentences that no worker has taken, by generation: half a window of lines, the oldest of which is taken
    first. In each from short to long, and the newest of a length first."""

    found: dict[int, list[Hypothesis] | None] = field(default_factory=dict)
    """By the sentence's key, until its line is given back."""

    given_back: int = 0
    """Lines that the caller has the translations of."""

    complete: bool = False
    """The input has ended."""

    error: BaseException | None = None
    """Why the input could not be read to its end."""

    reading: threading.RLock = field(default_factory=threading.RLock)
    """Held while a line is cut into pieces; who closes the request waits for it, and then no more are cut."""

    def has_room(self, line: Line) -> bool:
        """Whether the window lets `line` in."""
        return line.number - self.given_back <= self.window

    def add(self, line: Line) -> None:
        """Let the sentences of `line` wait."""
        self.lines[line.number] = line
        for one in line.sentences:
            self.put(Queued(one.key, one.tokens, one.prefix, one.banned, one.tree, self.number))

    def put(self, sentence: Sentence) -> None:
        """Let a sentence wait, again if it was taken before."""
        generation = sentence.key // PARTS // max(1, self.window // 2)
        insort(self.waiting.setdefault(generation, []), sentence, key=lambda one: (len(one.tokens), -one.key))

    def take(self, slots: int, tokens: int, running: Sequence[Sentence]) -> list[Sentence]:
        """See `nmt_cli.decoding.engine.Queue`; all are of one generation."""
        oldest = min(self.waiting)
        chosen = take_longest(self.waiting[oldest], slots, tokens, running)
        if not self.waiting[oldest]:
            del self.waiting[oldest]
        return chosen

    def next_done(self) -> tuple[Line, list[list[Hypothesis] | None]] | None:
        """Remove the next line in order, with what was found for its sentences; None if it is not done."""
        line = self.lines.get(self.given_back + 1)
        if line is None or any(one.key not in self.found for one in line.sentences):
            return None
        self.given_back += 1
        return self.lines.pop(line.number), [self.found.pop(one.key) for one in line.sentences]

    @property
    def ended(self) -> bool:
        """Whether no more lines will be done."""
        return self.complete and not self.lines
