"""The function `load` and the class `Model`."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from nmt_cli.config import own_entries, resolved
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.setting_values import check_section
from nmt_cli.translation.arguments import Anywhere, Device, Pair, check_counts, checked_lines, checked_pairs

if TYPE_CHECKING:  # PyTorch takes seconds to load
    from nmt_cli.decoding.attention_maps import AttentionMaps
    from nmt_cli.decoding.search.hypotheses import Rule, Scored
    from nmt_cli.model.transformer import Transformer
    from nmt_cli.runtime.devices import Precision
    from nmt_cli.text.formats import Format
    from nmt_cli.text.glossary import Terms
    from nmt_cli.text.tokenizers import Tokenizers
    from nmt_cli.translation.lines import Translation
    from nmt_cli.translation.loading import Loaded
    from nmt_cli.translation.pairs import Alignment
    from nmt_cli.translation.text.model_glossary import Glossary
    from nmt_cli.translation.text.ranking import Scorer
    from nmt_cli.translation.workers.pool import Workers


def load(
    *paths: Anywhere,
    device: Device = "auto",
    devices: int = 1,
    precision: Precision | None = None,
    threads: int | None = None,
    config: TranslateConfig | None = None,
    scorer: Scorer | None = None,
) -> Model:
    """Load a model, checkpoint or run folder. Several folders are an ensemble.

    The model runs on `devices` GPUs, or on the CPU with `threads` threads, by default one per available core.
    `device` is as for PyTorch: "cpu", "cuda", "cuda:1" for the second GPU, or a `torch.device`. "auto" is a
    GPU if there is one, else the CPU.
    The default `precision` is fp16 on a GPU and fp32 on a CPU. Without `config`, the defaults and the own
    search settings of an imported model apply. `scorer`, a `Comet` or a `CommandScorer`, ranks the
    translations of the beam. Raises `UserError` for an invalid folder or setting, `TypeError` for no folder.

    >>> model = load(folder, device="cpu", threads=2)
    >>> model.translate(["abc def"])
    ['abc def']
    """
    from nmt_cli.checkpoints.finding import own_search
    from nmt_cli.translation.loading import Hardware
    from nmt_cli.translation.loading import load as load_models

    if not paths or not all(isinstance(path, str | os.PathLike) for path in paths):
        raise TypeError("load needs folders: load(folder), or load(first, second) for an ensemble.")
    check_counts(devices=devices, threads=threads)
    check_section("config", config, TranslateConfig)
    folders = [Path(path) for path in paths]
    if config is None:
        own = {f"search.{name}": value for name, value in own_search(folders[0]).items()}
        config = resolved(TranslateConfig, own_entries(own))
    hardware = Hardware(device, devices, threads or 0, precision)
    return Model(load_models(folders, config, hardware, scorer))


class Model:
    """A model or an ensemble, ready to translate, as returned by `load`.

    Several threads may use a model at once. Their sentences share batches. The first translation starts the
    workers. On Linux, several workers for the CPU are processes. So are those for several GPUs, and a program
    must translate below `if __name__ == "__main__":`. The workers end with `close`, at the end of a `with`
    block, or when the model is garbage-collected. A forked process starts its own workers.
    """

    def __init__(self, loaded: Loaded, running: _Running | None = None) -> None:
        self._any_direction = loaded
        self._running = running or _Running(loaded)

    def __repr__(self) -> str:
        return f"<Model {'-'.join(self.languages)}>"

    @property
    def _loaded(self) -> Loaded:
        """The models. Raise `UserError` if no direction is chosen, and translations need its symbol."""
        tokenizers = self._any_direction.translator.tokenizers
        if tokenizers.recipe.needs_direction:
            tokenizers.directed()  # raises the error, which lists the languages
        return self._any_direction

    @property
    def languages(self) -> tuple[str, str]:
        """The source and the target language, as named in training. "mul" stands for several languages.

        >>> model.languages
        ('en', 'de')
        """
        recipe = self.tokenizers.recipe
        return recipe.source_lang, recipe.target_lang

    @property
    def directions(self) -> list[tuple[str, str]]:
        """All pairs of a source and a target language among which a call may choose.

        >>> model.directions
        [('en', 'de')]
        """
        return self.tokenizers.recipe.own_languages.directions

    def direction(self, target: str | None = None, source: str | None = None) -> Model:
        """Return a model of several languages for one direction. All its methods translate in this direction.
        It shares weights and workers with this model, and sentences of several directions share batches. A
        model of one source language does not need `source`. Raises `UserError` for an unknown language.

        >>> model.direction("de").translate(["abc"])
        ['abc']
        >>> model.direction("fr")
        Traceback (most recent call last):
        nmt_cli.errors.UserError: the model does not translate into fr: it has de.
        """
        return Model(self._any_direction.directed(source, target), self._running)

    @property
    def config(self) -> TranslateConfig:
        """The settings with which the model was loaded."""
        return self._any_direction.translator.config

    @property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of source and target.

        >>> model.tokenizers.source.encode("abc") == model.tokenizers.target.encode("abc")
        True
        """
        return self._any_direction.translator.tokenizers

    @property
    def transformers(self) -> Sequence[Transformer]:
        """The models of the ensemble as PyTorch modules, on the first device.

        A CPU translates with a copy of their weights, so changes have no effect on translations. To train a
        model, use `read_model`."""
        return self._any_direction.models

    @property
    def max_source_tokens(self) -> int:
        """The maximum number of source tokens of a sentence. Longer sentences are translated in parts."""
        return self._any_direction.translator.segmenter.longest

    def glossary(self, terms: Terms | Anywhere) -> Glossary:
        """Return a glossary from a file, or from the accepted translations of each term. If a source has a
        term, its translation has one of them. Soft glossaries miss some. Raises `UserError` for bad terms.

        >>> model.translate(["abc"], glossary=model.glossary({"abc": ["abd", "bcd"]})) == ["abc"]
        False
        """
        from nmt_cli.translation.text.model_glossary import Glossary

        return Glossary(self.tokenizers, terms, self._loaded.annotates)

    def translate(
        self,
        lines: Iterable[str],
        search: SearchConfig | None = None,
        glossary: Glossary | None = None,
        rule: Rule | None = None,
        *,
        target: str | None = None,
        source: str | None = None,
    ) -> list[str]:
        """Return the best translation of each line, in order. Raises `UserError` if a line does not fit into
        memory. `search` replaces the search settings of `load` for this call, here and in other methods.
        `target` and `source` are languages of a model of several, as for `direction`.

        `rule` may forbid next tokens. Each step calls `rule(log_probs, history, end)`, and the rule changes
        `log_probs` in place: a row for each hypothesis, a column for each id, -inf for a forbidden token.
        `history.paths()` has the ids of each row so far, and `end` is the id that ends it. If worker
        processes translate, the rule must be picklable.

        >>> model.translate(["abc", "", "de"])
        ['abc', '', 'de']
        >>> model.translate(["abc"], SearchConfig(beam=1))
        ['abc']
        """
        model = self.direction(target, source) if target or source else self
        return [one.checked_text for one in model.translations(lines, search, glossary=glossary, rule=rule)]

    def stream(self, lines: Iterable[str], search: SearchConfig | None = None) -> Iterator[str]:
        """Yield the best translation of each line in order, each as soon as finished. A thread reads `lines`,
        up to 8,192 lines ahead. Raises errors like `translate`, those of `lines` after the last.

        >>> for text in model.stream(line for line in ("abc", "de")):
        ...     print(text)
        abc
        de
        """
        return (translation.checked_text for translation in self.translations(lines, search))

    def translations(
        self,
        lines: Iterable[str],
        search: SearchConfig | None = None,
        before_waiting: Callable[[], None] = lambda: None,
        aligned: bool = False,
        glossary: Glossary | None = None,
        rule: Rule | None = None,
    ) -> Iterator[Translation]:
        """Yield the translation of each line like `stream`, with all candidates, scores and tokens. `flags`
        are signs that the translation is wrong. A line that does not fit into memory has `failed` set and
        raises nothing. `before_waiting` is called whenever the next translation is not finished yet. If
        `aligned`, the translation has the alignment of its words. `rule` is that of `translate`.

        >>> (abc,) = model.translations(["abc"], SearchConfig(beam=3, n_best=2))
        >>> [candidate.text for candidate in abc.candidates][0]
        'abc'
        >>> abc.candidates[0].score > abc.candidates[1].score
        True
        >>> abc.candidates[0].tokens
        ['a', 'b', 'c', '</s>']
        """
        from nmt_cli.translation.stream import stream

        # This method is no generator, so that wrong arguments raise errors here and not at the first result.
        options = replace(self._loaded.options(search, aligned, glossary), rule=rule)
        lines = checked_lines(lines)
        queue = self._running.started().queue
        return self._kept(stream(self._loaded.translator, options, queue, lines, before_waiting))

    def translate_text(self, text: str, search: SearchConfig | None = None) -> str:
        """Return the translation of a text, sentence by sentence, with whitespace as `joined` keeps it.

        >>> model.translate_text("One is.  Two is.\\n\\n  Three is. ")
        'One is.  Two is.\\n\\n  Three is. '
        """
        sentences, spaces = self.sentences(text)
        return self.joined(self.translate(sentences, search), spaces)

    def translate_html(self, text: str, search: SearchConfig | None = None) -> str:
        """Return the translation of an HTML document. The text of a block, such as a paragraph, is translated
        as a whole. Its inline tags return to the words that the model attends to. Code and elements with
        `translate="no"` stay as they are.

        >>> model.translate_html("<p>One is.</p><p>Two <b>is</b>.</p>")
        '<p>One is.</p><p>Two <b>is</b>.</p>'
        """
        return self.translate_document(text, "html", search)

    def translate_document(
        self,
        text: str,
        form: Format,
        search: SearchConfig | None = None,
        report: Callable[[Translation], None] = lambda translation: None,
        glossary: Glossary | None = None,
    ) -> str:
        """Return the translation of the text of a file. `form` is "html", "xhtml", "xml", "xliff", "po",
        "srt" or "vtt". Only text for people is translated. The rest stays as it is, but the language that a
        page declares (`<html lang="en">`) becomes the target language. `report` gets each sentence.

        >>> model.translate_document("1\\n00:00:01,000 --> 00:00:02,000\\nOne\\nis.\\n", "srt")
        '1\\n00:00:01,000 --> 00:00:02,000\\nOne\\nis.\\n'
        """
        from nmt_cli.text.formats import XML_FORMS, blocks_of
        from nmt_cli.text.html_language import with_language
        from nmt_cli.translation.document import cut

        document = cut(blocks_of(text, form), self.sentences, is_xml=form in XML_FORMS)
        sentences, aligned, texts = document.sentences, document.has_tags, []
        for one in self.translations(sentences, search, aligned=aligned, glossary=glossary):
            report(one)
            texts.append((one.checked_text, one.shares))
        result = document.translated(texts, self.joined)
        is_page = bool(texts) and form in ("html", "xhtml", "xml")
        return with_language(result, self.languages[1]) if is_page else result

    def sentences(self, text: str) -> tuple[list[str], list[str]]:
        """Split a text. Return a list of its sentences, and a list of the whitespace after each sentence.
        Whitespace at the start of the text follows an empty sentence.

        >>> model.sentences("One is.  Two is.\\n")
        (['One is.', 'Two is.'], ['  ', '\\n'])
        """
        parts = self._loaded.translator.segmenter.split(text)
        return [sentence for sentence, _ in parts], [spaces for _, spaces in parts]

    def joined(self, translations: Sequence[str], blanks: Sequence[str]) -> str:
        """Return translations of sentences as one text. `blanks` is the whitespace after each source
        sentence. A single blank or none becomes a space, or nothing in Chinese and Japanese.

        >>> model.joined(["Eins ist.", "Zwei ist."], ["  ", "\\n"])
        'Eins ist.  Zwei ist.\\n'
        """
        return self._loaded.translator.joiner.joined(translations, blanks)

    async def atranslate(self, lines: Iterable[str], search: SearchConfig | None = None) -> list[str]:
        """Return the best translation of each line like `translate`, without blocking the event loop. A
        cancelled call removes its sentences from the queue and from the running batch.

        >>> asyncio.run(model.atranslate(["abc", "", "de"]))
        ['abc', '', 'de']
        """
        return [text async for text in self.astream(lines, search)]

    async def astream(self, lines: Iterable[str], search: SearchConfig | None = None) -> AsyncIterator[str]:
        """Yield the best translation of each line like `stream`, without blocking the event loop.

        >>> async def main():
        ...     async for text in model.astream(["abc", "de"]):
        ...         print(text)
        >>> asyncio.run(main())
        abc
        de
        """
        async with aclosing(self.atranslations(lines, search)) as translations:
            async for translation in translations:
                yield translation.checked_text

    async def atranslations(
        self,
        lines: Iterable[str],
        search: SearchConfig | None = None,
        aligned: bool = False,
        glossary: Glossary | None = None,
    ) -> AsyncGenerator[Translation]:
        """Yield the translation of each line like `translations`, without blocking the event loop.

        >>> async def main():
        ...     async for translation in model.atranslations(["abc"], SearchConfig(beam=2, n_best=2)):
        ...         print(len(translation.candidates))
        >>> asyncio.run(main())
        2
        """
        import asyncio

        from nmt_cli.translation.stream import async_stream

        lines, options = checked_lines(lines), self._loaded.options(search, aligned, glossary)
        workers = self._workers
        if not workers or not workers.usable:
            workers = await asyncio.to_thread(self._running.started)  # takes seconds
        stream = async_stream(self._loaded.translator, options, workers.queue, lines)
        # A consumer that stops early takes its sentences out of the queue now, not when the generator is
        # collected.
        async with aclosing(stream) as translations:
            async for translation in translations:
                yield translation

    async def atranslate_text(self, text: str, search: SearchConfig | None = None) -> str:
        """Return the translation of a text like `translate_text`, without blocking the event loop.

        >>> asyncio.run(model.atranslate_text("One is.\\n\\nTwo is."))
        'One is.\\n\\nTwo is.'
        """
        lines, spaces = self.sentences(text)
        return self.joined(await self.atranslate(lines, search), spaces)

    def score(self, pairs: Iterable[Pair]) -> list[float]:
        """Return the log-probability of each translation given its source, in order. A pair is (source,
        translation), both as raw text. Long pairs are not split. The calling thread computes the scores.

        >>> same, other = model.score([("abc", "abc"), ("abc", "xyz")])
        >>> same > other
        True
        """
        return [scored.log_probability for scored in self.token_scores(pairs)]

    def token_scores(self, pairs: Iterable[Pair]) -> list[Scored]:
        """Return the tokens of each translation with their log-probabilities, the end token included.

        >>> (scored,) = model.token_scores([("abc", "abc")])
        >>> scored.tokens
        ['a', 'b', 'c', '</s>']
        >>> len(scored.token_scores)
        4
        """
        from nmt_cli.translation.pairs import score_pairs

        return score_pairs(self._loaded, checked_pairs(pairs))

    def align(self, pairs: Iterable[Pair]) -> list[Alignment]:
        """Return the alignment of each pair: for each target token, the source token with the highest
        attention in the first model, by its guided head or else by its most certain heads.

        >>> (aligned,) = model.align([("abc", "abc")])
        >>> aligned.source, aligned.target, aligned.links
        (['a', 'b', 'c'], ['a', 'b', 'c'], [0, 1, 2])
        """
        from nmt_cli.translation.pairs import align_pairs

        return align_pairs(self._loaded, checked_pairs(pairs))

    def attention_maps(self, pairs: Iterable[Pair]) -> list[AttentionMaps]:
        """Return the attention weights of all layers and heads of the first model for each pair, in order.

        >>> (maps,) = model.attention_maps([("abc", "ab")])
        >>> maps.cross.shape[2:]  # target and source tokens, each with the end token
        torch.Size([3, 4])
        """
        from nmt_cli.translation.pairs import maps_of_pairs

        return maps_of_pairs(self._loaded, checked_pairs(pairs))

    def start(self) -> None:
        """Start the workers before the first translation. Raises `RuntimeError` for a closed model."""
        self._running.started()

    @property
    def _workers(self) -> Workers | None:
        return self._running.workers

    @property
    def queued(self) -> int:
        """The number of waiting and running sentences of all requests.

        >>> model.queued
        0
        """
        return self._workers.queue.unfinished if self._workers else 0

    @property
    def restarts(self) -> int:
        """The number of worker processes that died. Replacements translated their sentences again."""
        return self._workers.restarts if self._workers else 0

    @property
    def last_death(self) -> str:
        """Why a worker process died and was replaced, or "" if none was."""
        return self._workers.last_death if self._workers else ""

    def close(self) -> None:
        """End the workers. Running and later translations raise `RuntimeError`."""
        self._running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _kept(self, translations: Iterator[Translation]) -> Iterator[Translation]:
        """Yield `translations` unchanged. The generator refers to the model, so its workers stay alive."""
        yield from translations


class _Running:
    """The workers of a model, which the models of its directions share."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self.workers: Workers | None = None
        self._closed = False
        # Two threads that translate first must not both start workers.
        self._changing = threading.Lock()

    def started(self) -> Workers:
        """Return usable workers. Start them if there are none. Raise `RuntimeError` for a closed model."""
        from nmt_cli.translation.workers.pool import Workers

        with self._changing:
            if self._closed:
                raise RuntimeError("the model is closed. Load it again.")
            # Unusable after a failure, or if this process is a fork of the one that started them.
            if not self.workers or not self.workers.usable:
                if self.workers:
                    self.workers.close()
                self.workers = Workers(self._loaded.workers, self._loaded.start)
                # Unlike `__del__`, this is also called if the program ends while the model is in use.
                weakref.finalize(self, self.workers.close_at_any_moment)
            return self.workers

    def close(self) -> None:
        """End the workers. Later calls of `started` raise `RuntimeError`."""
        with self._changing:
            self._closed = True
            if self.workers:
                self.workers.close()
