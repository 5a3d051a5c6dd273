"""The state that all requests share: models, limits on the work, language detection and metrics.

A sentence is waiting from the moment that its request is accepted until it is translated. An error in these
methods is `Refused`, with the HTTP status in parentheses: 400 for a wrong request, 413 for too much text, 429
for a busy server, and 503 if translating fails.
"""

import asyncio
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

from nmt_cli.api import Model, SearchConfig, UserError
from nmt_cli.serving.config import MAX_CHARACTERS, MAX_TEXTS, ServerConfig
from nmt_cli.serving.directions import Directions
from nmt_cli.serving.documents import Documents, TranslatedText, TranslationRequest, cut
from nmt_cli.serving.metrics import Metrics
from nmt_cli.serving.models import Models
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.store import Store
from nmt_cli.text.languages.identify import LanguageDetector
from nmt_cli.translation.lines import Translation
from nmt_cli.translation.stream import SHORT_CHARACTERS
from nmt_cli.translation.text.model_glossary import Glossary
from nmt_cli.translation.text.unit_shares import composed

Result = TypeVar("Result")


class Service:
    """Translates texts and detects languages for all requests. One event loop calls all methods."""

    def __init__(self, directions: Directions, config: ServerConfig, store: Store) -> None:
        """`directions` has the models, `config` has the limits, and `store` keeps files and glossaries."""
        self.directions, self.config, self.store = directions, config, store
        self.detection = LanguageDetector(directions.languages)
        self.models = Models(directions.models, config)
        self.metrics = Metrics()
        self.glossaries: dict[str, Glossary] = {}
        """Stored glossaries that are ready for their models, by id."""

        self.encoding = asyncio.Lock()
        """Held while a glossary is made ready, so that this is done once."""

        self.waiting = 0
        """Number of accepted sentences that are not translated yet."""

        self.metrics.watch(lambda: self.waiting, self.models)

        # Markup takes longest to cut. In its own thread, it does not keep plain texts of others waiting. More
        # threads would be no faster, since Python runs one at a time.
        self._markup_thread = ThreadPoolExecutor(1, "markup")
        self._seconds_per_sentence = 0.01  # a moving average over requests
        self._one_at_a_time = asyncio.Semaphore()

    def check_size(self, texts: Sequence[str]) -> None:
        """Raise `Refused` (413) if there are more than `MAX_TEXTS` texts, or together more characters than
        `MAX_CHARACTERS`."""
        if len(texts) > MAX_TEXTS:
            raise Refused(413, f"The request has {len(texts):,} texts. Send at most {MAX_TEXTS:,} at a time.")
        if (count := sum(map(len, texts))) > MAX_CHARACTERS:
            message = f"The text has {count:,} characters. Send at most {MAX_CHARACTERS:,} at a time."
            raise Refused(413, message)

    async def translate(self, request: TranslationRequest) -> tuple[list[TranslatedText], list[Translation]]:
        """Return the translation of each text of a request, and the translation of each sentence of all
        texts, in order. Raise `Refused` (413, 429 or 503)."""
        documents = await self.documents(request)
        async with aclosing(self.stream(documents)) as stream:
            translations = [translation async for translation in stream]
        return await self.joined(documents, translations), translations

    async def joined(self, documents: Documents, translations: Sequence[Translation]) -> list[TranslatedText]:
        """Return the translation of each text, made of the `translations` of its sentences."""
        if sum(map(len, documents.sentences)) <= SHORT_CHARACTERS:
            return documents.translated(translations)
        thread = self._markup_thread if documents.request.markup else None
        running = asyncio.get_running_loop()
        return await running.run_in_executor(thread, documents.translated, translations)

    async def documents(self, request: TranslationRequest) -> Documents:
        """Cut the texts of a request into sentences, and count their characters. Raise `Refused` for too much
        text (413), a damaged document (400), or a busy server (429)."""
        self.check_size(request.texts)
        count = sum(map(len, request.texts))
        async with self.models.using(request.direction.legs) as models:
            try:
                if count <= SHORT_CHARACTERS:
                    documents = cut(request, models, self._check_size_in_sentences)
                else:
                    documents = await self._cut_in_thread(request, models)
            except UserError as error:
                raise Refused(400, str(error)) from error
        self._check_sentences(len(documents.sentences))
        self.metrics.characters.inc(count)
        return documents

    async def _cut_in_thread(self, request: TranslationRequest, models: Sequence[Model]) -> Documents:
        """Cut the texts of a request in a thread. If the call is cancelled, the thread ends soon."""
        cancelled = threading.Event()

        def check(count: int) -> None:
            if cancelled.is_set():
                raise asyncio.CancelledError
            self._check_size_in_sentences(count)

        thread = self._markup_thread if request.markup else None
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, cut, request, models, check)
        finally:
            cancelled.set()

    async def stream(self, documents: Documents) -> AsyncGenerator[Translation]:
        """Yield the translation of each sentence in order, as soon as it is finished. Closing the generator
        drops the rest.

        Through a pivot language, all sentences are translated by the first model before the second begins.
        Raise `Refused` for too many sentences (413), a busy server (429), and failed workers or a sentence
        that does not fit into memory (503).
        """
        request, aligned = documents.request, documents.aligned
        count = left = len(documents.sentences)
        self._check_sentences(count)
        start, ahead = time.monotonic(), self.waiting
        self.waiting += count
        try:
            async with self.models.using(request.direction.legs) as (*before, last):
                pivots = await _pivots(before, documents)
                lines = [one.checked_text for one in pivots] if before else documents.sentences
                search = _search(last, request.alternatives)
                stream = last.atranslations(lines, search, aligned, request.glossary)
                async with aclosing(stream) as translations:
                    async for translation in translations:
                        if translation.failed:
                            raise Refused(503, "A sentence does not fit into memory. Send shorter sentences.")
                        if pivots:
                            translation = _through(pivots[count - left], translation, aligned)
                        left -= 1
                        self.waiting -= 1
                        self.metrics.translated(translation)
                        yield translation
            if sentences := ahead + count:
                seconds = (time.monotonic() - start) / sentences
                self._seconds_per_sentence += 0.1 * (seconds - self._seconds_per_sentence)
        except UserError as error:
            raise Refused(503, str(error)) from error
        finally:
            self.waiting -= left
            self.metrics.sentences.inc(count - left)
            self.metrics.dropped.inc(left)

    async def detect(self, texts: Sequence[str]) -> list[tuple[str, float]]:
        """Return each language with its probability from 0 to 1 for the joined `texts`, likeliest first."""
        text = " ".join(texts)
        # Only loading the detector takes long. A thread would have to wait for the other threads.
        if self.detection.loaded:
            return self.detection.ranked(text)
        return await asyncio.to_thread(self.detection.ranked, text)

    async def run_in_thread(self, count: int, work: Callable[[], Result]) -> Result:
        """Run `work` in a thread, and return its result. Only one `work` runs at a time.

        Its `count` sentences count as waiting. If the call is cancelled, the thread still ends its work
        before the next one begins. Raise `Refused` for too many sentences (413), or a busy server (429).
        """
        self._check_sentences(count)
        self.waiting += count
        try:
            await self._one_at_a_time.acquire()
            running = asyncio.ensure_future(asyncio.to_thread(work))
            # When the thread ends, not when this call does: clients that disconnect at once could otherwise
            # start any number of threads.
            running.add_done_callback(lambda _: self._one_at_a_time.release())
            return await asyncio.shield(running)
        finally:
            self.waiting -= count

    def _check_sentences(self, count: int) -> None:
        """Raise `Refused` if `count` sentences exceed `server.most_waiting` (413) or the free slots (429)."""
        self._check_size_in_sentences(count)
        self.check_load(count)

    def _check_size_in_sentences(self, count: int) -> None:
        """Raise `Refused` (413) if `count` sentences exceed `server.most_waiting`."""
        if count > (limit := self.config.most_waiting):
            raise Refused(413, f"The request has more than {limit:,} sentences. Send less at a time.")

    def check_load(self, count: int = 1) -> None:
        """Raise `Refused` (429) if the server cannot accept `count` more sentences now. The error estimates
        after how many seconds it can."""
        if self.waiting + count > self.config.most_waiting:
            excess = self.waiting + count - self.config.most_waiting
            # After `most_seconds`, all present requests are answered or dropped.
            seconds = math.ceil(min(excess * self._seconds_per_sentence, self.config.most_seconds))
            seconds = max(1, seconds)
            raise Refused(429, f"The server is busy. Try again in {seconds} s.", seconds)


async def _pivots(models: Sequence[Model], documents: Documents) -> list[Translation]:
    """Return the translation of each sentence into the pivot language by `models`, [] for no model."""
    pivots: list[Translation] = []
    for model in models:
        stream = model.atranslations(documents.sentences, aligned=documents.aligned)
        async with aclosing(stream) as translations:
            pivots = [translation async for translation in translations]
    return pivots


def _through(pivot: Translation, translation: Translation, aligned: bool) -> Translation:
    """Return `translation` as a translation of the source of `pivot`, from whose text it was translated. With
    `aligned`, its words are aligned with those of the source."""
    # Without `aligned`, only lines with placeholders have shares, and perhaps in one model.
    shares = composed(pivot.shares, translation.shares) if aligned else ()
    # A loop that the second model translates faithfully is none for its flags.
    flags = [*dict.fromkeys([*pivot.flags, *translation.flags])]
    confidence = pivot.confidence * translation.confidence
    return replace(translation, flags=flags, shares=shares, confidence=confidence)


def _search(model: Model, alternatives: int) -> SearchConfig | None:
    """Return the settings of `model` with the number of results for `alternatives`, and with a beam that is
    wide enough. Return None without alternatives."""
    if not alternatives:
        return None
    search, count = model.config.search, alternatives + 1
    return replace(search, n_best=count, beam=max(search.beam, count) if search.has_beam else search.beam)
