"""Several steps of few hypotheses as one compiled call: what Python does between two steps of a lone line
takes a good part of the time that a step does."""

from functools import partial
from types import ModuleType

import numpy as np

from nmt_cli.decoding.beams import Beams, Rules
from nmt_cli.machine import standby
from nmt_cli.model.cache import DecodingCache
from nmt_cli.model.transformer import Transformer

STEPS = 8
"""Not more at a time: who joins a batch, or is no more wanted, waits for them."""


def suffices(model: Transformer, beams: Beams) -> bool:
    """Whether the model takes so few rows through all layers at once, each place being one."""
    return model.few_rows is not None and model.few_rows.suffices(beams.totals.numel())


def take(
    kernels: ModuleType,
    model: Transformer,
    cache: DecodingCache,
    beams: Beams,
    steps: int,
    longest: int,
    rules: Rules,
) -> int:
    """Let all hypotheses take so many steps, or fewer if a sentence is done before, or there is no room for
    more; returns how many.

    None of them then has more than `longest` tokens.
    """
    assert model.few_rows
    # The oldest sentence may be one that is done, of which books are kept as well.
    (sentences, places), oldest = beams.totals.shape, int(beams.ages.max())
    rows, heads = sentences * places, cache.layers[0].own_keys.shape[1]
    beams.make_room(oldest + steps + 1)
    cache.get_ready(steps)
    several = model.few_rows.several(rows, cache, longest)
    source = cache.source_seen[:, None].expand(-1, places, -1).numpy()
    numbers, counts = np.empty((4, rows), np.int64), np.empty((2, rows), np.int32)
    rows_S, opened = np.zeros(steps, np.int64), np.zeros(1, np.int64)
    given = (
        *(np.zeros((steps, 2, several.phases), np.int64), np.zeros((steps, 2, 1), np.int64), rows_S),
        *(*several.given, several.start, rules, beams.books, cache.tree(model.config.decoder_window)),
        (*numbers, np.empty((rows, heads), np.int64), np.empty((sentences, places), np.int64)),
        (
            *(np.empty((rows, cache.used), np.int32), counts[0], source),
            *(np.empty((rows, source.shape[2]), np.int32), counts[1]),
        ),
    )
    work = partial(standby.keeping, (several.keeper, model), kernels.steps, opened)
    try:
        standby.beside(partial(work, True, *given), partial(work, False, *given))
    finally:
        opened += steps  # or others would wait for the next one, though this thread may lack memory for it
    cache.ready = 0
    return int(np.count_nonzero(rows_S))
