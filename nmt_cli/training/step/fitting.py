"""How many tokens fit into the memory of a device at a time, found by trying."""

import numpy as np
import torch

from nmt_cli.attention.groups import grouped
from nmt_cli.data.batching.batch import MicroBatch
from nmt_cli.data.config import BatchConfig
from nmt_cli.errors import UserError
from nmt_cli.ragged import Layout
from nmt_cli.runtime.memory import LACKS, out_of_memory, release_unused
from nmt_cli.training.step.trainer import Trainer

HEADROOM = 0.9
"""Share of the tokens found to fit that is used, as batches of other shapes may take more memory."""


def fitting_tokens(trainer: Trainer, share: int, batch: BatchConfig) -> int:
    """The most source plus target tokens of a micro-batch; `share` are those of a rank's local batch.

    Tries a batch of the longest pairs that training may see, and halves it until it fits.
    """
    device, longest = trainer.precision.device, min(batch.longest, batch.tokens)
    tokens = max(share, 2 * longest)  # no micro-batch is larger than the share, whatever would fit
    while tokens >= 2 * longest:
        try:
            trainer.try_out(_longest_pairs(tokens, longest).to(device))
            return tokens if tokens >= share else int(tokens * HEADROOM)
        except LACKS as error:
            if not out_of_memory(error):
                raise
        release_unused(device)
        tokens //= 2
    raise UserError(
        f"a pair of {longest} tokens on each side does not fit the memory of {device}; "
        "lower batch.longest, or take a smaller model."
    )


def _longest_pairs(tokens: int, longest: int) -> MicroBatch:
    """About `tokens` source plus target tokens in pairs of the longest sentences.

    The two sides differ in tokens, if by one: what is equal in the first batch that `torch.compile` sees, it
    takes for equal in all, and compiles anew for the next one.
    """
    pairs = max(1, tokens // (2 * longest))
    lengths = np.full(pairs, longest)
    target = Layout.of(lengths, longest)
    lengths[-1] = max(longest - 1, 1)
    source = Layout.of(lengths, longest)
    ids = torch.zeros(pairs * longest, dtype=torch.int64)
    return MicroBatch(
        pairs=np.arange(pairs),
        source_tokens=ids[: len(source.segments)].clone(),
        target_tokens=ids,
        labels=ids.clone(),
        source=grouped(source),
        target=grouped(target, source),
        real_source_tokens=len(source.segments),
        real_target_tokens=len(ids),
    )
