"""The trial of the longest batch, which finds how many tokens fit the memory of a device."""

import time
from dataclasses import dataclass, replace

import numpy as np
import torch

from nmt_cli.data.batching.batch import MicroBatch, Rounding, assemble
from nmt_cli.data.batching.loader import Cut
from nmt_cli.data.batching.plan import Indices, fitting
from nmt_cli.data.batching.schedule import all_too_long
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import Split
from nmt_cli.errors import UserError, printable
from nmt_cli.model.kernel_verdicts import REASON_LENGTH
from nmt_cli.runtime.devices import compiling_pays, gpu_name, synchronize
from nmt_cli.runtime.kernels.families import refused
from nmt_cli.runtime.memory import MEMORY_ERRORS, has_own_memory, out_of_memory, peak_memory, release_unused
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.step.distributed import Process
from nmt_cli.training.step.trainer import Trainer
from nmt_cli.training.tracking.events import Report, Warned
from nmt_cli.units import duration, size

TOKENS_ON_CPU = 8192
"""Default limit of source plus target tokens in a micro-batch on a CPU."""

HEADROOM = 0.9
"""Fraction of the fitting tokens that is used, since batches of other shapes may need more memory."""

# The lengths of all pairs at once would take memory that grows with the corpus.
PAIRS_READ_AT_ONCE = 1 << 20

COMPARED_TOKENS = 2000
"""Source plus target tokens of the step that compares the compiled model with the plain one."""

SECONDS_TO_REPEAT = 120
"""A first pass that takes longer is not measured a second time."""


@dataclass(frozen=True, slots=True)
class LongestBatch:
    """The result of a trial: time and memory of the longest micro-batch that fits."""

    tokens: int
    """Source plus target tokens in all draws of dropout, without filler."""

    seconds: float
    memory: int
    """Peak memory in bytes: of the GPU, or of this process on a CPU."""

    cut: Cut
    """How training cuts its batches, so that micro-batches fit the device."""

    total_seconds: float
    """Duration of the whole trial, with batches that did not fit."""

    def __str__(self) -> str:
        what = f"the longest batch, {self.tokens:,} tokens"
        return f"{what}, took {duration(self.seconds)} and {size(self.memory)} at most"


def compiled(config: TrainConfig, device: torch.device) -> bool:
    """Return whether torch.compile is used: training.compile is "on", or "auto" on a GPU that can compile.
    Return False after it has failed."""
    if "torch.compile" in refused:
        return False
    return config.training.compile == "on" or (config.training.compile == "auto" and compiling_pays(device))


def is_searched(config: TrainConfig, device: torch.device) -> bool:
    """Return whether this is a GPU, and training.max_tokens_per_device is 0, so that a trial is needed."""
    return has_own_memory(device) and not config.training.max_tokens_per_device


def first_cut(config: TrainConfig, device: torch.device, process: Process) -> Cut:
    """Return how `process` cuts its share of a batch into micro-batches, before any trial.

    The limit of tokens is training.max_tokens_per_device. If this is 0, it is the whole share on a GPU, whose
    limit a trial then lowers, and `TOKENS_ON_CPU` on a CPU.
    """
    automatic = _share(config, process.world) if has_own_memory(device) else TOKENS_ON_CPU
    max_tokens = config.training.max_tokens_per_device or automatic
    cut = Cut(process.rank, process.world, max_tokens, draws=config.loss.draws)
    return _with_rounding(cut, config, device)


def try_longest(trainer: Trainer, split: Split, cut: Cut, report: Report) -> LongestBatch:
    """Take a step on the longest pairs of `split` that changes no weight. Return its time, its memory, and a
    cut that fits.

    If the pairs do not fit the memory, every second one is tried, until they fit. On each retry, the cut gets
    fewer tokens if their number is searched. If the user has set the number, the retry is a warning.

    Raise `UserError` if a single pair does not fit. With training.deterministic, raise it if the first pairs
    do not.
    """
    config, device, start = trainer.config, trainer.precision.device, time.perf_counter()
    searched = is_searched(config, device)
    pairs = longest_pairs(split, config.batch, min(cut.max_pair_tokens, 2 * config.batch.tokens // cut.world))
    while True:
        part = assembled(split, pairs, cut.rounding, cut.draws).to(device)
        tokens = part.real_source_tokens + part.real_target_tokens
        try:
            seconds = _timed(trainer, part)
            # The first pass also compiles and allocates, so it says little about the speed.
            if cut.rounding or seconds <= SECONDS_TO_REPEAT:
                seconds = _timed(trainer, part)
            return LongestBatch(tokens, seconds, peak_memory(device), cut, time.perf_counter() - start)
        except MEMORY_ERRORS as error:
            if not out_of_memory(error):
                raise
            if len(pairs) == 1 or config.training.deterministic:
                raise UserError(
                    f"the longest batch, {tokens:,} tokens in {len(pairs)} pairs, does not fit the memory of "
                    f"{device}. Lower batch.longest or --max-tokens-per-device, or use a smaller model."
                ) from error
        release_unused(device)
        pairs = pairs[::2]  # as `Loader.halved` does in a step
        if searched:
            fewer = replace(cut, max_tokens=max(1, int(tokens / 2 * HEADROOM)))
            cut = _with_rounding(fewer, config, device)
        else:
            message = f"{tokens:,} tokens do not fit the memory of {device}. Lower --max-tokens-per-device."
            report(Warned(message))


def fault_of_compiling(trainer: Trainer, split: Split, cut: Cut) -> str:
    """Compile the model for a step on a few pairs. Return why the compiled model cannot be used.

    Return "" if loss and gradients are about those of a plain step, and also for a lack of memory, which
    `try_longest` handles.

    Raise `UserError` if the step breaks the GPU for this process.
    """
    device = trainer.precision.device
    pairs = longest_pairs(split, trainer.config.batch, min(cut.max_pair_tokens, COMPARED_TOKENS))
    part = assembled(split, pairs, cut.rounding, cut.draws).to(device)
    try:
        compiled_step = torch.stack(trainer.try_out(part)).tolist()
    except Exception as error:
        if out_of_memory(error):
            return ""
        reason = printable(f"{type(error).__name__}: {error}")[:REASON_LENGTH]
        try:
            synchronize(device)
        except RuntimeError as dead:
            made = f"torch.compile made {gpu_name(device)} fail ({reason})"
            raise UserError(f"{made}. Start again with training.compile=off.") from dead
        return reason
    plain_step = torch.stack(trainer.try_out(part, plain=True)).tolist()
    (loss, norm), (plain_loss, plain_norm) = compiled_step, plain_step
    # Both steps draw their own dropout masks, which change the loss of few tokens more.
    allowed = 0.02 * plain_loss + 3 / part.real_target_tokens**0.5
    if abs(loss - plain_loss) <= allowed and plain_norm / 2 <= norm <= 2 * plain_norm:
        return ""
    theirs = f"{plain_loss:.4g} and {plain_norm:.4g} without it"
    return f"its loss is {loss:.4g} and its gradients have norm {norm:.4g}, but {theirs}"


def longest_pairs(split: Split, config: BatchConfig, max_tokens: int) -> Indices:
    """Return the indices of the longest pairs, longest first, up to `max_tokens` source plus target tokens in
    all.

    There is at least one pair, even if it is longer. Raise `UserError` if all pairs are too long for
    training.
    """
    longest = np.zeros(0, dtype=np.int64)
    for start in range(0, len(split), PAIRS_READ_AT_ONCE):
        pairs = np.concatenate((longest, np.arange(start, min(start + PAIRS_READ_AT_ONCE, len(split)))))
        source, target = split.lengths(pairs)
        fits = fitting(source, target, config.max_length)
        pairs, tokens = pairs[fits], (source + target)[fits]
        order = np.argsort(-tokens, kind="stable")
        count = max(1, int((np.cumsum(tokens[order]) <= max_tokens).sum()))
        longest = pairs[order[:count]]
    if not len(longest):
        raise all_too_long(len(split), config)
    return longest


def assembled(split: Split, pairs: Indices, rounding: Rounding | None, draws: int = 1) -> MicroBatch:
    """Return the micro-batch of `pairs` for a trial.

    It is rounded by `rounding`, unless both sides would then have the same number of tokens. From such a
    first batch, `torch.compile` would conclude that the numbers are always equal, and compile again later.
    """
    part = assemble(split, pairs, rounding, draws)
    equal = len(part.source_tokens) == len(part.target_tokens)
    return assemble(split, pairs, None, draws) if rounding and equal else part


def _share(config: TrainConfig, world: int) -> int:
    """Return the source plus target tokens of a rank's share of a batch, in all draws, rounded up."""
    return -(-2 * config.batch.tokens * config.loss.draws // world)


def _with_rounding(cut: Cut, config: TrainConfig, device: torch.device) -> Cut:
    """Return `cut` with the rounding of micro-batches that a compiled model needs, so that it sees few
    shapes. Without compiling, there is no rounding."""
    share = _share(config, cut.world)
    parts = -(-share // cut.max_tokens)
    tokens_per_side = share // parts // cut.draws // 2
    return replace(cut, rounding=Rounding.of(tokens_per_side) if compiled(config, device) else None)


def _timed(trainer: Trainer, part: MicroBatch) -> float:
    """Take a trial step on `part` without changing weights. Return the duration of the step in seconds."""
    start = time.perf_counter()
    trainer.try_out(part)
    synchronize(trainer.precision.device)
    return time.perf_counter() - start
