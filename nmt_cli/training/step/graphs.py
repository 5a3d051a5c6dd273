"""Micro-batches of one shape ask the same of a GPU: it is recorded once, and repeated with other contents.

A host that asks for hundreds of launches one by one is slower than the GPU where batches are small.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace

import torch
from torch import Tensor, nn

from nmt_cli.data.batches.batch import MicroBatch
from nmt_cli.ragged import ROWS, Groups

MOST = 64
"""Shapes whose launches are kept; 25,000 tokens in sentences as in WMT have 51."""

Work = Callable[[MicroBatch, Tensor, bool], None]
"""Adds the gradients of a micro-batch times a factor to those before it; True says that it is the first."""

Record = Callable[[Callable[[], None]], Callable[[], None]]
"""What `machine.replay.Recorder` is."""


@dataclass(slots=True)
class Graph:
    """What is done with micro-batches of one shape."""

    part: MicroBatch
    """Its tensors stay where they are: each batch is copied into them."""

    factor: Tensor
    kept: list[Tensor]
    """What recorded launches read and the model may put others in the place of: its buffers."""

    again: Callable[[], None] | None = None
    """Repeats it, once it is recorded."""


class Graphs:
    """Does work with micro-batches: plainly with the first of a shape, which also shows what is to be
    compiled; with the second it is recorded, and from then on repeated."""

    def __init__(self, model: nn.Module, record: Record, tell: Callable[[str], None]) -> None:
        """If recording fails, `tell` is told, and everything is done plainly."""
        self._model, self._tell = model, tell
        self._record: Record | None = record
        self._graphs: OrderedDict[Hashable, Graph] = OrderedDict()

    def run(self, work: Work, part: MicroBatch, factor: Tensor, first: bool) -> None:
        """Do `work`, which is the same each time."""
        shape = (*_shape(part), first)
        graph = self._graphs.pop(shape, None)
        if self._record and graph and not graph.again:
            self._try_to_record(graph, work, first)
        if not self._record:
            work(part, factor, first)
            return
        if graph:
            for place, value in zip(_on_device(graph.part), _on_device(part), strict=True):
                place.copy_(value)
            graph.factor.copy_(factor)
            assert graph.again
            graph.again()
        else:
            graph = Graph(_of_any_lengths(part), factor.clone(), [])
            work(graph.part, graph.factor, first)  # with the tensors that will be read from then on
        self._graphs[shape] = graph
        if len(self._graphs) > MOST:
            self._graphs.popitem(last=False)  # the one that was used least recently

    def forget(self) -> None:
        """Give all memory back; what comes again is recorded anew."""
        self._graphs.clear()

    def _try_to_record(self, graph: Graph, work: Work, first: bool) -> None:
        assert self._record
        graph.kept = list(self._model.buffers())
        try:
            graph.again = self._record(lambda: work(graph.part, graph.factor, first))
        except RuntimeError as error:
            self._record = None
            self.forget()
            said = (str(error).splitlines() or [""])[0]
            self._tell(f"training.graphs is off from here on, since launches could not be recorded: {said}")


def _shape(part: MicroBatch) -> tuple[Hashable, ...]:
    """What is equal in micro-batches that can share their launches."""
    return part.source.longest, part.target.longest, *(x.shape for x in _on_device(part))


def _of_any_lengths(part: MicroBatch) -> MicroBatch:
    """A copy, whose attention is planned for sentences of all lengths that there can be in its shape."""
    copy = deepcopy(part)
    longest = max(copy.source.longest, copy.target.longest)
    source, target = (
        replace(
            layout,
            lengths=layout.lengths[:0],  # those of one batch, which nobody may go by
            groups=_of_any_rows(layout.groups, layout.longest),
            pair_groups=_of_any_rows(layout.pair_groups, longest),
        )
        for layout in (copy.source, copy.target)
    )
    return replace(copy, source=source, target=target)


def _of_any_rows(groups: Groups | None, longest: int) -> Groups | None:
    """As if there might be as many groups of each size as segments; empty ones end at once."""
    if groups is None:
        return None
    segments = len(groups.places) // 4
    begins = [0, *(0 if longest > rows else segments for rows in ROWS)]
    most = max(longest, ROWS[0])  # of several short segments in a group, if not of one
    counts = [*(number for begin in begins for number in (begin, segments)), most, most]
    return replace(groups, counts=torch.tensor(counts, dtype=groups.counts.dtype))


def _on_device(part: MicroBatch) -> list[Tensor]:
    """The tensors that move where a micro-batch is moved; what plans launches stays on the host."""
    both = zip(_tensors(part), _tensors(part.to("meta")), strict=True)
    return [tensor for tensor, moved in both if moved.is_meta]


def _tensors(thing: object) -> Iterator[Tensor]:
    if isinstance(thing, Tensor):
        yield thing
    elif is_dataclass(thing):
        for field in fields(thing):
            yield from _tensors(getattr(thing, field.name))
