"""One caller's lines, from when they are read until their translations are given back in order."""

import threading
from bisect import insort
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.engine import take_longest
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.translation.translator import PARTS, Line


@dataclass(frozen=True, slots=True)
class Queued(Sentence):
    """A sentence with the number of its request; its key is unique only within the request."""

    request: int = 0
    deaths: int = 0
    """How many processes died while they translated it."""

    @property
    def identity(self) -> Hashable:
        """What no other sentence in its queue has."""
        return self.request, self.key


@dataclass(slots=True)
class Request:
    """The lines of one caller that are read but not given back; used only under the lock of its queue."""

    number: int
    search: SearchConfig
    window: int
    """Most lines that are held at a time: how far reading may be ahead of the output."""

    changed: threading.Condition
    """Told of what its caller, or its reader, waits for."""

    told: Callable[[], None]
    """Called at the same time."""

    lines: dict[int, Line] = field(default_factory=dict)
    waiting: dict[int, list[Sentence]] = field(default_factory=dict)
    """Sentences that wait for a worker, in groups of half a window of lines each, by the number of the group.

    Workers take the longest first, but only from the lowest group: so no short line waits for ever, while the
    lines behind it may not leave before it does. A group's list ends with what is taken first: it ascends in
    length, and of equal lengths the oldest is last."""

    found: dict[int, list[Hypothesis] | None] = field(default_factory=dict)
    """Hypotheses by the sentence's key, until its line is given back."""

    given_back: int = 0
    """How many lines the caller has got the translations of."""

    complete: bool = False
    """The input has ended: no line will be added."""

    error: BaseException | None = None
    """Why the input could not be read to its end."""

    unfinished: int = 0
    """How many sentences wait or are being translated."""

    reading: threading.RLock = field(default_factory=threading.RLock)
    """Held while a line is tokenised; closing the request takes it too, so after that no thread tokenises."""

    def awaken(self) -> None:
        """Let caller and reader look again."""
        self.changed.notify_all()
        self.told()

    def has_room(self, line: Line) -> bool:
        """Whether `line` is within the window: lines are numbered from 1, in order."""
        return line.number - self.given_back <= self.window

    def add(self, line: Line) -> None:
        """Add `line`, and let its sentences wait for a worker."""
        self.lines[line.number] = line
        self.unfinished += len(line.sentences)
        for one in line.sentences:
            self.put(
                Queued(
                    *(one.key, one.tokens, one.prefix, one.banned, one.tree, one.certain, one.placeholders),
                    request=self.number,
                )
            )
        if not line.sentences:
            self.awaken()

    def put(self, sentence: Sentence) -> None:
        """Let a sentence wait for a worker; also one that was taken and is put back."""
        generation = sentence.key // PARTS // max(1, self.window // 2)
        insort(self.waiting.setdefault(generation, []), sentence, key=lambda one: (len(one.tokens), -one.key))

    def take(self, slots: int, tokens: int, running: Sequence[Sentence]) -> list[Sentence]:
        """See `nmt_cli.decoding.engine.Queue`; something must wait. All come from the oldest group."""
        oldest = min(self.waiting)
        chosen = take_longest(self.waiting[oldest], slots, tokens, running)
        if not self.waiting[oldest]:
            del self.waiting[oldest]
        return chosen

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """Note the hypotheses of a sentence; its caller is told if it waits for that line."""
        self.found[sentence.key] = hypotheses
        self.unfinished -= 1
        if sentence.key // PARTS == self.given_back + 1:
            self.awaken()

    def next_done(self) -> tuple[Line, list[list[Hypothesis] | None]] | None:
        """Remove the next line in order and return it with its sentences' hypotheses; None if it is not
        done."""
        line = self.lines.get(self.given_back + 1)
        if line is None or any(one.key not in self.found for one in line.sentences):
            return None
        self.given_back += 1
        return self.lines.pop(line.number), [self.found.pop(one.key) for one in line.sentences]

    @property
    def ended(self) -> bool:
        """Whether all lines have been given back, and no more will come."""
        return self.complete and not self.lines
