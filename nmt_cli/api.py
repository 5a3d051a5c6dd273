"""The library: everything `nmt` does that is worth calling from Python.

    from nmt_cli.api import load

    with load("runs/en-de") as model:
        print(model.translate(["A dog runs.", "Two cats sleep."]))

Nothing here changes the program around it: not PyTorch's number of threads, no random seed, no signal
handler, no environment variable (but for the one that cuBLAS wants where training shall be deterministic, and
two that bound what oneDNN and PyTorch keep, set by `load` where they are not).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from nmt_cli.config import read
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.decoding.config import InputConfig, SearchConfig, TranslateConfig
from nmt_cli.errors import UserError
from nmt_cli.training.config import TrainConfig

if TYPE_CHECKING:  # PyTorch takes seconds to load
    from nmt_cli.data.making.preprocess import Outcome
    from nmt_cli.decoding.hypotheses import Scored
    from nmt_cli.decoding.lines.given_pairs import Alignment
    from nmt_cli.decoding.lines.loading import Loaded
    from nmt_cli.decoding.lines.translator import Translation
    from nmt_cli.decoding.lines.workers import Workers
    from nmt_cli.machine.devices import Precision
    from nmt_cli.machine.processes import Progress
    from nmt_cli.training.record.events import Report

__all__ = [
    "InputConfig",
    "Model",
    "PreprocessConfig",
    "SearchConfig",
    "TrainConfig",
    "Trained",
    "TranslateConfig",
    "UserError",
    "load",
    "preprocess",
    "train",
]

Anywhere = str | os.PathLike[str]
Device = Literal["auto", "cpu", "cuda"]


def load(
    *paths: Anywhere,
    device: Device = "auto",
    devices: int = 1,
    precision: Precision | None = None,
    threads: int | None = None,
    config: TranslateConfig | None = None,
) -> Model:
    """Load a model, checkpoint or run folder; several are an ensemble.

    Translates on `devices` GPUs, or with as many `threads` of the processor, by default all that this process
    may use. `precision` is fp16 on a GPU by default and fp32 elsewhere. Without `config`, an imported model
    decodes as its owner does. `UserError` says what is wrong with a folder or a setting.

    >>> model = load(folder, device="cpu", threads=2)
    >>> model.translate(["abc def"])
    ['abc def']
    """
    from nmt_cli.checkpoints.finding import own_search
    from nmt_cli.decoding.lines.loading import Where
    from nmt_cli.decoding.lines.loading import load as load_models

    folders = [Path(path) for path in paths]
    where = Where(device, devices, threads or 0, precision)
    if config is None:
        own = {f"search.{name}": value for name, value in own_search(folders[0]).items()}
        config = read(TranslateConfig, defaults=own)
    return Model(load_models(folders, config, where))


class Model:
    """A model, or several as one, ready to translate; made by `load`.

    Any threads may use it at the same time: what they ask for is translated in the same batches. The first
    translation starts the workers, on Linux processes of their own where there are several for the CPU; they
    end with `close`, with a `with` block, or when nobody has the model any more. A process that was forked
    before that has workers of its own.
    """

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        """What it is made of."""

        self._workers: Workers | None = None
        self._closed = False
        self._changing = threading.Lock()

    def translate(self, lines: Iterable[str], search: SearchConfig | None = None) -> list[str]:
        """The best translation of each line; empty for a line without words.

        >>> model.translate(["abc", "", "de"])
        ['abc', '', 'de']
        >>> model.translate(["abc"], SearchConfig(beam=1))
        ['abc']
        """
        return [translation.text for translation in self.translations(lines, search)]

    def stream(self, lines: Iterable[str], search: SearchConfig | None = None) -> Iterator[str]:
        """As `translate`, each translation as soon as it and those before it are done.

        A thread reads `lines`, as far ahead as `input.window` in the settings of `load` says.

        >>> for text in model.stream(line for line in ("abc", "de")):
        ...     print(text)
        abc
        de
        """
        return (translation.text for translation in self.translations(lines, search))

    def translations(
        self,
        lines: Iterable[str],
        search: SearchConfig | None = None,
        before_waiting: Callable[[], None] = lambda: None,
    ) -> Iterator[Translation]:
        """As `stream`, with all that is known of each line: candidates with their scores and pieces, flags.

        Where the next one is not done yet, `before_waiting` is called.

        >>> (abc,) = model.translations(["abc"], SearchConfig(beam=3, n_best=2))
        >>> [candidate.text for candidate in abc.candidates][0]
        'abc'
        >>> abc.candidates[0].score > abc.candidates[1].score
        True
        >>> abc.candidates[0].tokens
        ['a', 'b', 'c', '</s>']
        """
        from nmt_cli.decoding.lines.stream import stream

        translator = self.loaded.searching(search)
        search = translator.config.search
        return self._kept(stream(translator, self._started().queue, lines, search, before_waiting))

    def translate_text(self, text: str, search: SearchConfig | None = None) -> str:
        """The translation of a whole text, each sentence by itself; blanks and line breaks stay as they are.

        >>> model.translate_text("One is.  Two is.\\n\\n  Three is. ")
        'One is.  Two is.\\n\\n  Three is. '
        """
        sentences, blanks = self.sentences(text)
        return self.joined(self.translate(sentences, search), blanks)

    def sentences(self, text: str) -> tuple[list[str], list[str]]:
        """The sentences of a text and the blanks behind each; those at its start are behind an empty one.

        >>> model.sentences("One is.  Two is.\\n")
        (['One is.', 'Two is.'], ['  ', '\\n'])
        """
        found = self.loaded.translator.split(text)
        return [sentence for sentence, _ in found], [blanks for _, blanks in found]

    def joined(self, translations: Sequence[str], blanks: Sequence[str]) -> str:
        """The translations of `sentences` as one text, with the same blanks, as the target language has them.

        >>> model.joined(["Eins ist.", "Zwei ist."], ["  ", "\\n"])
        'Eins ist.  Zwei ist.\\n'
        """
        return self.loaded.translator.joined(translations, blanks)

    async def atranslate(self, lines: Iterable[str], search: SearchConfig | None = None) -> list[str]:
        """As `translate`, for programs with an event loop, which it never blocks.

        Where it is cancelled, its sentences leave the queue and the running batch.

        >>> asyncio.run(model.atranslate(["abc", "", "de"]))
        ['abc', '', 'de']
        """
        return [text async for text in self.astream(lines, search)]

    async def astream(self, lines: Iterable[str], search: SearchConfig | None = None) -> AsyncIterator[str]:
        """As `stream`, for programs with an event loop.

        >>> async def main():
        ...     async for text in model.astream(["abc", "de"]):
        ...         print(text)
        >>> asyncio.run(main())
        abc
        de
        """
        async with aclosing(self.atranslations(lines, search)) as translations:
            async for translation in translations:
                yield translation.text

    async def atranslations(
        self, lines: Iterable[str], search: SearchConfig | None = None
    ) -> AsyncGenerator[Translation]:
        """As `translations`, for programs with an event loop.

        >>> async def main():
        ...     async for translation in model.atranslations(["abc"], SearchConfig(beam=2, n_best=2)):
        ...         print(len(translation.candidates))
        >>> asyncio.run(main())
        2
        """
        import asyncio

        from nmt_cli.decoding.lines.async_stream import async_stream

        translator = self.loaded.searching(search)
        workers = self._workers
        if not workers or not workers.usable:
            workers = await asyncio.to_thread(self._started)  # which takes its time
        found = async_stream(translator, workers.queue, lines, translator.config.search)
        async with aclosing(found) as translations:
            async for translation in translations:
                yield translation

    async def atranslate_text(self, text: str, search: SearchConfig | None = None) -> str:
        """As `translate_text`, for programs with an event loop.

        >>> asyncio.run(model.atranslate_text("One is.\\n\\nTwo is."))
        'One is.\\n\\nTwo is.'
        """
        lines, blanks = self.sentences(text)
        return self.joined(await self.atranslate(lines, search), blanks)

    def score(self, pairs: Iterable[tuple[str, str]]) -> list[float]:
        """The log-probability of each translation, given its source; computed in the calling thread.

        >>> same, other = model.score([("abc", "abc"), ("abc", "xyz")])
        >>> same > other
        True
        """
        return [scored.log_probability for scored in self.token_scores(pairs)]

    def token_scores(self, pairs: Iterable[tuple[str, str]]) -> list[Scored]:
        """As `score`, of each piece.

        >>> (scored,) = model.token_scores([("abc", "abc")])
        >>> scored.tokens
        ['a', 'b', 'c', '</s>']
        >>> len(scored.token_scores)
        4
        """
        from nmt_cli.decoding.lines.given_pairs import score_pairs

        return score_pairs(self.loaded, list(pairs))

    def align(self, pairs: Iterable[tuple[str, str]]) -> list[Alignment]:
        """For each piece of a translation the piece of its source that the first model looks at most.

        >>> (aligned,) = model.align([("abc", "abc")])
        >>> aligned.source, aligned.target, aligned.links
        (['a', 'b', 'c'], ['a', 'b', 'c'], [0, 1, 2])
        """
        from nmt_cli.decoding.lines.given_pairs import align_pairs

        return align_pairs(self.loaded, list(pairs))

    def start(self) -> None:
        """Start the workers, unless they are; else the first translation does."""
        self._started()

    @property
    def queued(self) -> int:
        """How many sentences wait or are being translated, of all requests together.

        >>> model.queued
        0
        """
        return self._workers.queue.unfinished if self._workers else 0

    @property
    def restarts(self) -> int:
        """How many worker processes died, so that others translated again what they had."""
        return self._workers.restarts if self._workers else 0

    def close(self) -> None:
        """End the workers; what is under way in other threads is a `RuntimeError` there."""
        with self._changing:
            self._closed = True
            if self._workers:
                self._workers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _kept(self, translations: Iterator[Translation]) -> Iterator[Translation]:
        """The same translations, from a generator that holds on to the model: whoever still iterates keeps
        its workers alive."""
        yield from translations

    def _started(self) -> Workers:
        from nmt_cli.decoding.lines.workers import Workers

        with self._changing:
            if self._closed:
                raise RuntimeError("the model was closed; load it again.")
            # Not usable where they failed, or where this process is a fork of the one that started them.
            if not self._workers or not self._workers.usable:
                if self._workers:
                    self._workers.close()
                self._workers = Workers(self.loaded.workers)
                # Unlike `__del__` this is called also when the program ends with the model still in use.
                weakref.finalize(self, self._workers.close)
            return self._workers


def preprocess(
    source_lang: str,
    target_lang: str,
    train: Sequence[str],
    out: Anywhere,
    *,
    valid: Sequence[str] = (),
    test: Sequence[str] = (),
    reuse_tokenizer: str | None = None,
    config: PreprocessConfig | None = None,
    given: frozenset[str] = frozenset(),
    workers: int | None = None,
    overwrite: bool = False,
    progress: Progress = lambda stage, done, whole: None,
    shard: tuple[int, int] = (1, 1),
) -> Outcome:
    """Make the dataset folder `out` of raw parallel text, as `nmt preprocess` does with such options.

    With `shard`, as (3, 16), it does only what machine 3 of 16 is to do. `given` names settings meant as they
    are, be it at their defaults. Starts processes: in a script, call it below `if __name__ == "__main__":`.

    >>> outcome = preprocess("en", "de", [corpus], dataset, config=characters, workers=1)
    >>> outcome.manifest["splits"]["train"]["pairs"]
    300
    """
    from nmt_cli.data.making.job import Job
    from nmt_cli.data.making.parts import Share
    from nmt_cli.data.making.preprocess import preprocess as make_dataset
    from nmt_cli.machine.threads import available_cores

    settings = config or PreprocessConfig()
    job = Job(source_lang, target_lang, train, valid, test, reuse_tokenizer, settings, given)
    return make_dataset(job, Path(out), workers or available_cores(), overwrite, progress, Share(*shard))


@dataclass(frozen=True, slots=True)
class Trained:
    """A run folder, and whether the run came to its end."""

    folder: Path
    complete: bool


def train(
    dataset: Anywhere,
    out: Anywhere,
    config: TrainConfig | None = None,
    *,
    device: Device = "auto",
    threads: int | None = None,
    report: Report = lambda event: None,
    stop_wanted: Callable[[], bool] = lambda: False,
    command: Sequence[str] = (),
) -> Trained:
    """Train on a dataset folder, in the run folder `out`; the same call again goes on where the run stands.

    On a CPU with so many `threads`, by default as many as OMP_NUM_THREADS says, or there are processors.

    `report` is told what happens; when `stop_wanted` says so, the run is saved and ends. The run folder keeps
    the `command` that asked for it. On several devices, a process for each has to make the call, under
    torchrun or Slurm.

    >>> trained = train(dataset, run, tiny, device="cpu")
    >>> trained.complete
    True
    >>> load(trained.folder, device="cpu", threads=1).translate([""])
    ['']
    """
    import torch

    from nmt_cli.machine.devices import device_of_rank, is_gpu
    from nmt_cli.training.assembling.run import train as train_run
    from nmt_cli.training.step.distributed import process_from_environment

    process = process_from_environment()
    where = device_of_rank(device, process.local_rank)
    paths, settings = (Path(dataset), Path(out)), config or TrainConfig()
    # Training seeds PyTorch's generators, and they are the caller's.
    with torch.random.fork_rng([where] if is_gpu(where) else []):
        complete = train_run(*paths, settings, process, where, report, stop_wanted, command, threads or 0)
    return Trained(paths[1], complete)
