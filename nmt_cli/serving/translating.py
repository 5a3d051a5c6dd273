"""The one desk where every request's sentences are taken in: bounded in number and in time."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

from nmt_cli.api import Model, SearchConfig, UserError
from nmt_cli.runtime.threads import set_own_threads
from nmt_cli.serving.config import MAX_TEXTS, ServerConfig
from nmt_cli.serving.directions import Directions
from nmt_cli.serving.metrics import Metrics
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.texts.documents import Documents, Made, Wanted, cut
from nmt_cli.text.languages.identify import LanguageDetector
from nmt_cli.translation.async_stream import SHORT_CHARACTERS
from nmt_cli.translation.translator import Translation

Result = TypeVar("Result")

LATEST = 30
"""Seconds after which a client is told to come again at the latest."""


class Desk:
    """All that requests need, whatever they look like; of one event loop."""

    def __init__(self, directions: Directions, config: ServerConfig) -> None:
        self.directions, self.config = directions, config
        self.detection = LanguageDetector(directions.languages)
        self.metrics = Metrics()
        self.waiting = 0
        """Sentences that were taken in and are not translated."""

        self._seconds_each = 0.01
        self._one_at_a_time = asyncio.Semaphore()

    def bounded(self, texts: Sequence[str]) -> None:
        """Refuse texts that are too many or too long."""
        if len(texts) > MAX_TEXTS:
            raise Refused(413, f"there are {len(texts):,} texts; send at most {MAX_TEXTS:,}.")
        if (count := sum(map(len, texts))) > self.config.most_characters:
            most = self.config.most_characters
            raise Refused(413, f"the text has {count:,} characters; send at most {most:,} at a time.")

    async def translated(self, wanted: Wanted) -> list[Made]:
        """The translations of all texts of a request."""
        documents = await self.documents(wanted)
        async with aclosing(self.stream(documents)) as found:
            translations = [translation async for translation in found]
        return documents.made(translations)

    async def documents(self, wanted: Wanted) -> Documents:
        """The texts as sentences, unless they are too many."""
        self.bounded(wanted.texts)
        count = sum(map(len, wanted.texts))
        documents = await asyncio.to_thread(cut, wanted) if count > SHORT_CHARACTERS else cut(wanted)
        self._refuse_beyond(len(documents.sentences))
        self.metrics.characters += count
        return documents

    async def stream(self, documents: Documents) -> AsyncGenerator[Translation]:
        """The translation of each sentence, in order, each as soon as it is there.

        Who closes the stream takes all sentences back that are not translated yet.
        """
        *before, last = documents.wanted.direction.models
        lines, count = documents.sentences, len(documents.sentences)
        self._refuse_beyond(count)
        began, ahead, left = time.monotonic(), self.waiting, count
        self.waiting += count
        try:
            for model in before:
                lines = await model.atranslate(lines)
            search = _search(last, documents.wanted.alternatives)
            async with aclosing(last.atranslations(lines, search)) as found:
                async for translation in found:
                    if translation.failed:
                        raise Refused(503, "a sentence does not fit into memory; send shorter ones.")
                    left -= 1
                    self.waiting -= 1
                    self.metrics.flags.update(translation.flags)
                    yield translation
            self._note_pace(time.monotonic() - began, ahead + count)
        except UserError as error:
            raise Refused(503, str(error)) from error
        finally:
            self.waiting -= left
            self.metrics.sentences += count - left
            self.metrics.dropped += left

    async def detected(self, texts: Sequence[str]) -> list[tuple[str, float]]:
        """The languages that the texts may be in, the likeliest first."""
        text = " ".join(texts)
        # A thread would have those that were not taken in yet wait in a line of its own.
        if self.detection.loaded:
            return self.detection.ranked(text)
        return await asyncio.to_thread(self.detection.ranked, text)

    async def aside(self, count: int, work: Callable[[], Result]) -> Result:
        """What comes of `work` on so many sentences, which this process does itself, one work at a time."""
        self._refuse_beyond(count)
        self.waiting += count
        try:
            async with self._one_at_a_time:
                return await asyncio.to_thread(_in_one_thread, work)
        finally:
            self.waiting -= count

    def _refuse_beyond(self, count: int) -> None:
        if count > (most := self.config.most_waiting):
            raise Refused(413, f"there are {count:,} sentences; send at most {most:,} at a time.")
        self.refuse_full(count)

    def refuse_full(self, count: int = 1) -> None:
        """Refuse so many sentences where as many wait as may; the earlier, the cheaper."""
        if self.waiting + count > self.config.most_waiting:
            seconds = min(LATEST, max(1, math.ceil(self.waiting * self._seconds_each)))
            raise Refused(429, f"the server is busy; try again in {seconds} s.", seconds)

    def _note_pace(self, seconds: float, sentences: int) -> None:
        if sentences:
            self._seconds_each += 0.1 * (seconds / sentences - self._seconds_each)


def _in_one_thread(work: Callable[[], Result]) -> Result:
    set_own_threads(1)
    return work()


def _search(model: Model, alternatives: int) -> SearchConfig | None:
    """As the model is set up, with as many further translations."""
    if not alternatives:
        return None
    search, count = model.config.search, alternatives + 1
    return replace(search, n_best=count, beam=max(search.beam, count) if search.has_beam else search.beam)
