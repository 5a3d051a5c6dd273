"""Segments the training text again for each epoch, for subword sampling and augmentation.

Links between words follow the text, and become links between the tokens that the epoch has. Worker processes
of one rank segment the text for all ranks on its machine.
"""

import gc
import shutil
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random
from threading import Event, Lock

import numpy as np

from nmt_cli.config import changed
from nmt_cli.data.array_files import Array, Extent, TextReader
from nmt_cli.data.dataset import LINKS, TOKENIZERS, TRAIN, Dataset, Split, open_sentences, read_manifest
from nmt_cli.data.encode import EncodedSide, TokensWriter, encode_lines, lines_of, loaded, packed
from nmt_cli.data.token_links import LinksWriter, PairLinks, TokenLinks, as_links, pair_links
from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import reporting_full_disk
from nmt_cli.runtime.processes import crew
from nmt_cli.text.config import AugmentConfig, SamplingConfig
from nmt_cli.text.glossary import Annotator, read_terms
from nmt_cli.text.linked_words import Link, Pair, words_of
from nmt_cli.text.placeholders import TERM, family
from nmt_cli.text.sampling import Draw, sampler
from nmt_cli.text.subword_models.subwords import BYTES
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.text.variation import VARIATIONS, changes

BLOCK_PAIRS = 2000
"""Pairs in a worker's task, few enough for workers to stop quickly."""

PURPOSE = {"source": 3, "target": 4, "augment": 8}
"""Purposes of random bits, to make them differ from those of epoch plans with the same seed."""


@dataclass(frozen=True, slots=True)
class EpochChanges:
    """How each epoch changes the training text. Equal seeds give equal changes."""

    sampling: SamplingConfig
    augment: AugmentConfig
    seed: int
    linked: bool = False
    """True if each epoch needs the links between its tokens."""

    @property
    def sides(self) -> list[Side]:
        """The sides to segment. The others stay as they are in the dataset. Augmentation and links need both
        sides."""
        both = self.augment.enabled or self.linked
        return [side for side in SIDES if both or getattr(self.sampling, side)]


@dataclass(frozen=True, slots=True)
class ResegmentTask:
    """A block of training pairs to augment and segment for one epoch."""

    tokenizers: Path
    fingerprint: str
    """The fingerprint of the tokenizers in the task's folder."""

    changes: EpochChanges
    texts: Mapping[Side, Extent]
    """The lines of each side to segment."""

    epoch: int
    first: int
    """The number of the first pair."""

    links: Sequence[Array] | None
    """The links between the words of each pair, or None if none are needed."""


@dataclass(frozen=True, slots=True)
class ResegmentedBlock:
    """The pairs of a task as an epoch has them."""

    sides: Mapping[Side, EncodedSide]
    links: PairLinks | None
    """The links between the tokens, or None if none are needed."""


class Resegmented:
    """The training pairs as each epoch segments them. Seed, epoch and line number decide the segmentation.

    One rank of each machine writes the pairs of an epoch to files. Other ranks may ask for an epoch as soon
    as a shard of it is planned, because its files are complete by then.
    """

    def __init__(
        self,
        dataset: Dataset,
        tokenizers: Tokenizers,
        changes: EpochChanges,
        folder: Path,
        *,
        workers: int,
    ) -> None:
        """Begin nothing. `close` has to be called.

        folder: for the files of epochs. The ranks of a machine share it, and no other run uses it.
        workers: number of processes that segment. 0 for ranks that only read the files.
        """
        self._dataset, self._tokenizers = dataset, tokenizers
        self._changes, self._folder = changes, folder
        self._open: dict[int, Split] = {}
        self._begun: dict[int, Future[None]] = {}
        self._lock, self._closed, self._stack = Lock(), Event(), ExitStack()
        self._executor = ThreadPoolExecutor(1, "resegment") if workers else None
        self._share = self._stack.enter_context(crew(resegment, workers))

    def begin(self, epoch: int) -> None:
        """Start to segment `epoch` in the background, once. Without workers or after `close`, do nothing."""
        with self._lock:
            if self._executor and epoch not in self._begun and not self._closed.is_set():
                self._begun[epoch] = self._executor.submit(self._write, epoch)

    def split(self, epoch: int) -> Split:
        """Return the training pairs as `epoch` segments them, and wait until they are segmented.

        A side that no setting changes is that of the dataset. Raise `UserError` if the dataset has changed,
        or if the disk is full.
        """
        self.begin(epoch)
        if epoch in self._begun:
            self._begun[epoch].result()
        with self._lock:
            if epoch not in self._open:
                # A side without sampling stays as it is in the dataset.
                plain = self._dataset.splits[TRAIN]
                sampled = {
                    side: open_sentences(self._epoch_folder(epoch), TRAIN, side)
                    for side in self._changes.sides
                }
                source, target = sampled.get("source", plain.source), sampled.get("target", plain.target)
                links = plain.links
                if self._changes.linked:
                    links = open_sentences(self._epoch_folder(epoch), TRAIN, LINKS)
                self._open[epoch] = replace(plain, source=source, target=target, links=links)
            return self._open[epoch]

    def forget(self, epoch: int) -> None:
        """Release an epoch that is no longer needed. Remove the epoch's files if this rank wrote them."""
        with self._lock:
            self._open.pop(epoch, None)
            if self._begun.pop(epoch, None):
                shutil.rmtree(self._epoch_folder(epoch), ignore_errors=True)

    def close(self) -> None:
        """Stop segmenting, and end the workers. Any thread may call this."""
        self._closed.set()
        if self._executor:
            self._executor.shutdown(cancel_futures=True)
        self._stack.close()

    def _write(self, epoch: int) -> None:
        """Segment an epoch into a folder of its own, which appears complete or not at all.

        Raise `UserError` if the dataset has changed or the disk is full, and `RuntimeError` after `close`.
        """
        folder = self._epoch_folder(epoch)
        unfinished = folder.with_suffix(".unfinished")
        self._refuse_changed()
        with reporting_full_disk(folder), ExitStack() as stack:
            unfinished.mkdir(parents=True)
            writers = {
                side: stack.enter_context(TokensWriter(unfinished, TRAIN, side, self._tokenizers.side(side)))
                for side in self._changes.sides
            }
            links = (
                stack.enter_context(LinksWriter(unfinished, TRAIN, LINKS)) if self._changes.linked else None
            )
            for block in self._share(self._tasks(epoch, stack)):
                for side, encoded in block.sides.items():
                    writers[side].append(encoded)
                if links and block.links is not None:
                    links.append(block.links)
        # The dataset may have changed while its text was read.
        self._refuse_changed()
        unfinished.rename(folder)

    def _refuse_changed(self) -> None:
        """Raise `UserError` if the dataset's manifest has changed since the dataset was opened."""
        folder = self._dataset.folder
        if read_manifest(folder) != self._dataset.manifest:
            raise UserError(f"{folder} was made again during training. Start another run.")

    def _tasks(self, epoch: int, stack: ExitStack) -> Iterator[ResegmentTask]:
        """Yield the tasks of an epoch in order, `BLOCK_PAIRS` pairs each. `stack` closes the text files."""
        folder = self._dataset.folder
        texts = {
            side: stack.enter_context(TextReader(folder / f"{TRAIN}.{side}")) for side in self._changes.sides
        }
        split = self._dataset.splits[TRAIN]
        word_links = split.word_links if self._changes.linked else None
        for first in range(0, len(split), BLOCK_PAIRS):
            if self._closed.is_set():
                raise RuntimeError("the epochs were closed while one was being segmented")
            end = min(first + BLOCK_PAIRS, len(split))
            extents = {side: text.extent(first, end) for side, text in texts.items()}
            yield ResegmentTask(
                tokenizers=folder / TOKENIZERS,
                fingerprint=self._tokenizers.fingerprint,
                changes=self._changes,
                texts=extents,
                epoch=epoch,
                first=first,
                links=word_links.arrays(first, end) if word_links else None,
            )

    def _epoch_folder(self, epoch: int) -> Path:
        return self._folder / f"epoch-{epoch:06}"


def resegment(task: ResegmentTask) -> ResegmentedBlock:
    """Return the ids of each side of a task, after augmentation if it is set, and the links between them.
    This runs in worker processes."""
    tokenizers, draws = _samplers(task.tokenizers, task.fingerprint, task.changes.sampling)
    lines = {side: lines_of(*extent) for side, extent in task.texts.items()}
    links = None if task.links is None else [{*as_links(numbers)} for numbers in task.links]
    if task.changes.augment.enabled:
        pairs = _varied(task, list(zip(lines["source"], lines["target"], strict=True)), links, tokenizers)
        lines = dict(zip(SIDES, map(list, zip(*pairs, strict=True)), strict=True))
    sides = {}
    for side, side_lines in lines.items():
        tokenizer = tokenizers.side(side)
        if side in draws:
            ids = map(draws[side], side_lines, _seeds(task, side, len(side_lines)))
            sides[side] = packed(ids, tokenizer)
        else:
            sides[side] = encode_lines(tokenizer, side_lines)
    if links is None:
        return ResegmentedBlock(sides, None)
    words = [[*map(words_of, lines[side])] for side in SIDES]
    tokens = [sides[side].without_ends(tokenizers.side(side).vocabulary.end) for side in SIDES]
    between_tokens = _token_links(task.tokenizers, task.fingerprint)
    return ResegmentedBlock(sides, between_tokens.of(words, tokens, pair_links(links)))


def samplers(tokenizers: Tokenizers, config: SamplingConfig) -> dict[Side, Draw]:
    """Return the sampler of each side that `config` samples. Raise `UserError` if sampling has no effect."""
    return {side: sampler(tokenizers.side(side), side, config) for side in SIDES if getattr(config, side)}


def refuse_no_effect(tokenizers: Tokenizers, augment: AugmentConfig) -> None:
    """Raise `UserError` for augmentation that would change no pair, and for an invalid file of terms.
    Placeholders and terms need symbols, and changes of case need a dataset that is not lower-cased."""
    symbols = tokenizers.recipe.symbols
    for name, symbol, value in (("placeholders", family(1)[1], "8"), ("terms", TERM, "true")):
        if getattr(augment, name) and symbol not in symbols:
            raise UserError(
                f"augment.{name} needs a dataset with symbols for {name}. Make one with "
                f"nmt preprocess --set tokenizer.{name}={value}."
            )
    both = (tokenizers.side(side).vocabulary.entries for side in SIDES)
    if augment.noise and not all(BYTES[0] in entries for entries in both):
        raise UserError(
            "augment.noise needs a dataset that spells unknown characters. Make one with "
            "nmt preprocess --set tokenizer.byte_fallback=true."
        )
    if augment.terms:
        Annotator(read_terms(Path(augment.terms_file)), tokenizers.source.prepare, tokenizers.target.prepare)
    if tokenizers.recipe.text.lowercase:
        for kind in changed(augment, "upper", "title"):
            raise UserError(f"augment.{kind} has no effect on a lower-cased dataset. Remove it.")


@cache
def _samplers(folder: Path, fingerprint: str, config: SamplingConfig) -> tuple[Tokenizers, dict[Side, Draw]]:
    """Return tokenizers and samplers, loaded once per process. Raise `ValueError` for another fingerprint."""
    # The caches of words have no cycles, and scanning them would take most of the time.
    gc.disable()
    tokenizers = loaded(folder, fingerprint)
    return tokenizers, samplers(tokenizers, config)


@cache
def _annotator(folder: Path, fingerprint: str, path: str) -> Annotator:
    """Return what annotates the terms of a file, loaded once per process."""
    tokenizers = loaded(folder, fingerprint)
    return Annotator(read_terms(Path(path)), tokenizers.source.prepare, tokenizers.target.prepare)


@cache
def _token_links(folder: Path, fingerprint: str) -> TokenLinks:
    """Return what turns links between words into links between tokens, made once per process."""
    return TokenLinks(loaded(folder, fingerprint))


def _seeds(task: ResegmentTask, purpose: str, count: int) -> list[int]:
    """Return a random seed for each of `count` lines, beginning with the first line of the task.

    A line's seed depends on its number in the training set, and not on the size of the task. `purpose` is a
    key of `PURPOSE`.
    """
    bits = np.random.PCG64(np.random.SeedSequence((task.changes.seed, task.epoch, 0, PURPOSE[purpose])))
    seeds: list[int] = bits.advance(task.first).random_raw(count).tolist()
    return seeds


def _varied(
    task: ResegmentTask, pairs: list[Pair], links: list[set[Link]] | None, tokenizers: Tokenizers
) -> list[Pair]:
    """Return `pairs` in order, of which some are varied. A pair gets at most one variation. The shares in
    [augment] are the probabilities.

    `links` has the links between the words of each pair. They are changed with it.
    """
    augment = task.changes.augment
    ends = list(accumulate(augment.shares))
    symbols, masks = tokenizers.recipe.symbols, tokenizers.recipe.placeholders
    symbol_set = frozenset(symbols)
    for n, seed in enumerate(_seeds(task, "augment", len(pairs))):
        # The upper 53 bits as a fraction from 0 to 1, as many bits as a float holds.
        kind = bisect_right(ends, (seed >> 11) / 2**53)
        if kind < len(VARIATIONS):
            own_links = links[n] if links is not None else ()
            own = changes(VARIATIONS[kind], pairs[n], Random(seed), symbol_set, masks, own_links)
        elif kind < len(ends):
            terms = _annotator(task.tokenizers, task.fingerprint, augment.terms_file)
            own = terms.learnt(*pairs[n], Random(seed))
        else:
            continue
        for change in own:
            if links is not None:
                links[n] = change.links(pairs[n], links[n])
            pairs[n] = change.of(pairs[n])
    return pairs
