"""A step between two looks asks a GPU for the same each time: it is recorded once, and repeated; not yet
run on a device.

A host that asks for hundreds of launches one by one is slower than the GPU.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from weakref import ref

import torch
from torch import Tensor

from nmt_cli.decoding.beams import Beams
from nmt_cli.model.cache import DecodingCache, LayerCache

Record = Callable[[Callable[[], None]], Callable[[], None]]
"""What `machine.replay.Recorder` is."""

Owner = Beams | DecodingCache | LayerCache

Advance = Callable[[Tensor], None]
"""Changes beams and caches by one step, as [3, R] rules say."""


class Repeated:
    """Takes steps: the first with some memory plainly, the second is recorded, and from then on repeated.

    Memory is new when sentences have joined or left, or when they need more room.
    """

    def __init__(self, record: Record) -> None:
        """If recording fails, a warning says so, and all steps are taken plainly."""
        self._record: Record | None = record
        self._memory: list[ref[Tensor]] = []
        """Not held: while sentences join, there would be no room for it."""
        self._sizes: Sequence[int] = ()
        self._rules: Tensor | None = None
        self._again: Callable[[], None] | None = None

    def take(
        self,
        beams: Beams,
        caches: Sequence[DecodingCache],
        buffers: Sequence[Tensor],
        most: int,
        rules: Tensor,
        advance: Advance,
    ) -> None:
        """Take a step with what is in `beams` and `caches`; `buffers` are the models', and `most` is a number
        that `advance` goes by."""
        if not self._record:
            advance(rules)
            return
        memory = [*(value for _, _, value in _tensors(beams, caches)), *buffers]
        sizes = [most, *(cache.used for cache in caches)]
        same = len(memory) == len(self._memory) and all(map(_is, self._memory, memory))
        if self._rules is None or not same or sizes != self._sizes:
            self._again, self._rules = None, rules
            self._memory, self._sizes = [ref(x) for x in memory], sizes
            _in_place(beams, caches, advance, rules)
            return
        self._rules.copy_(rules)
        ready = [cache.ready for cache in caches]
        if not self._again and not self._try_to_record(beams, caches, advance, self._rules):
            advance(rules)
            return
        assert self._again
        self._again()
        for cache, steps in zip(caches, ready, strict=True):
            cache.ready = steps - 1

    def forget(self) -> None:
        """Give all memory back."""
        self._memory, self._rules, self._again = [], None, None

    def _try_to_record(
        self, beams: Beams, caches: Sequence[DecodingCache], advance: Advance, rules: Tensor
    ) -> bool:
        assert self._record
        ready, before = [cache.ready for cache in caches], [*_tensors(beams, caches)]
        try:
            self._again = self._record(lambda: _in_place(beams, caches, advance, rules))
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            self._record = None
            self.forget()
            for owner, name, value in before:
                setattr(owner, name, value)
            for cache, steps in zip(caches, ready, strict=True):
                cache.ready = steps
            said = (str(error).splitlines() or [""])[0]
            warnings.warn(f"the steps of search are not recorded, which is slower: {said}", stacklevel=2)
        return self._again is not None


def _is(known: ref[Tensor], here: Tensor) -> bool:
    return known() is here


def _tensors(beams: Beams, caches: Sequence[DecodingCache]) -> Iterator[tuple[Owner, str, Tensor]]:
    """All that a step reads or changes: whose it is, its name, and itself."""
    owners: tuple[Owner, ...] = (beams, *caches, *(layer for cache in caches for layer in cache.layers))
    for owner in owners:
        for field in fields(owner):
            if isinstance(value := getattr(owner, field.name), Tensor):
                yield owner, field.name, value


def _in_place(beams: Beams, caches: Sequence[DecodingCache], advance: Advance, rules: Tensor) -> None:
    """Advance, and put what is new where the old was."""
    before = [*_tensors(beams, caches)]
    advance(rules)
    for owner, name, place in before:
        if (new := getattr(owner, name)) is not place:
            place.copy_(new)
            setattr(owner, name, place)
