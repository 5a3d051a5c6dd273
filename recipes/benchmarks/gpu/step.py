"""Time training steps with lengths as in WMT, or check that kernels and compiler agree with plain code.

python -m recipes.benchmarks.gpu.step OUT.json base|big|toy compiled|eager|check [--tokens 25000]
"""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import click
import numpy as np
import torch

from nmt_cli.attention import attention
from nmt_cli.attention.groups import grouped
from nmt_cli.data.batching.batch import MicroBatch, Rounding
from nmt_cli.data.batching.loader import Loader, LocalBatch
from nmt_cli.loss.plain_loss import IGNORED
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.cost import training_flops
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from nmt_cli.runtime.kernels.torch_private import compiled_for_all_sizes
from nmt_cli.text.vocabulary import Vocabulary
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.optimizer import Optimizer
from nmt_cli.training.step.trainer import MixedPrecision, Trainer
from recipes.benchmarks.gpu.device import kernels_of, seconds_of, the_device, wait
from recipes.benchmarks.lengths import Pairs, batches, wmt_like

SIZES = {
    "base": ModelConfig(),
    "big": ModelConfig(width=1024, feed_forward=4096, heads=16, residual_dropout=0.3),
    "toy": ModelConfig(encoder_layers=1, decoder_layers=1, width=32, feed_forward=32, heads=2),
}
ENTRIES = {"base": 37_000, "big": 37_000, "toy": 97}
"""Size of the joint vocabulary."""
TURNS = 3
PEAK_TFLOPS = {"989": "of the data sheet", "798": "of such products, as others measured"}
"""Peak rates of bf16 on an H100 or H200."""


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("size", type=click.Choice(list(SIZES)))
@click.argument("mode", type=click.Choice(["compiled", "eager", "check"]))
@click.option("--tokens", default=25_000, show_default=True, help="Tokens of each side of a batch.")
def main(out: Path, size: str, mode: str, tokens: int) -> None:
    """Measure or compare, and write OUT."""
    measured = {"size": size, "mode": mode, "tokens": tokens}
    measured |= check(size, tokens) if mode == "check" else measure(size, mode, tokens)
    print(json.dumps({key: value for key, value in measured.items() if key != "longest"}))
    out.write_text(json.dumps(measured, indent=1))


def check(size: str, tokens: int) -> dict[str, Any]:
    """Return differences of loss and gradients from eager code with padded attention, and a verdict."""
    shape = replace(SIZES[size], residual_dropout=0.0)
    part = micro_batches(tokens, Rounding.of(tokens), ENTRIES[size])[1]
    chosen, found = attention.implementation, {}
    for name, compiled, padded in (
        ("padded eager", False, True),
        ("kernels eager", False, False),
        ("kernels compiled", True, False),
    ):
        attention.implementation = (lambda *_: "padded") if padded else chosen
        one = trainer(shape, ENTRIES[size], compiled)
        one._refresh()
        one._forward_backward(part, part.real_target_tokens, first=True)
        found[name] = (float(one.gradients.losses[0]) / part.real_target_tokens, one.gradients.flat.clone())
    attention.implementation = chosen
    loss, gradient = found["padded eager"]
    off = {
        name: {"loss": abs(other - loss), "gradient": float((g - gradient).norm() / gradient.norm())}
        for name, (other, g) in found.items()
    }
    right = all(each["loss"] < 2e-3 and each["gradient"] < 3e-2 for each in off.values())
    return {"off_by": off, "right": right}


def measure(size: str, mode: str, tokens: int) -> dict[str, Any]:
    """Return the time of a step over batches of all lengths, and the work of host and device."""
    shape, entries = SIZES[size], ENTRIES[size]
    compiled = mode != "eager"
    one = trainer(shape, entries, compiled)
    parts = micro_batches(tokens, Rounding.of(tokens) if compiled else None, entries)
    steps = [partial(one.step, 1, 1e-4, local_batch(part), cast(Loader, None)) for part in parts]
    first = [round(seconds_of([step]), 2) for step in steps]
    seconds_of(steps)
    seconds = seconds_of(steps * TURNS) / TURNS
    source, target = (
        sum(getattr(part, f"real_{side}_tokens") for part in parts) for side in ("source", "target")
    )
    rate = training_flops(shape, entries, source, target) / seconds / 1e12
    measured = {
        "ms_a_step": round(1e3 * seconds / len(parts), 2),
        "target_tokens_per_second": round(target / seconds),
        "TFLOPs": round(rate, 1),
        "share_of_peak": {peak: round(rate / float(peak), 3) for peak in PEAK_TFLOPS},
        "host_ms_a_step": round(statistics.median(map(_host_ms, steps)), 2),
        "first_steps_s": first,
        "loss": float(steps[-1]()[0]) / parts[-1].real_target_tokens,
    }
    if torch.cuda.is_available():
        measured["peak_GB"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
    return measured | kernels_of(steps[1])


def _host_ms(step: Callable[[], object]) -> float:
    """Return the host's milliseconds to launch a step while the device is idle."""
    wait()
    began = time.perf_counter()
    step()
    asked = time.perf_counter() - began
    wait()
    return 1e3 * asked


def micro_batches(tokens: int, rounding: Rounding | None, entries: int) -> list[MicroBatch]:
    """Return batches of short, medium and long pairs, and one of all lengths."""
    return [_batch(pairs, rounding, entries) for pairs in batches(wmt_like(), tokens).values()]


def _batch(pairs: Pairs, rounding: Rounding | None, entries: int) -> MicroBatch:
    lengths = [np.ascontiguousarray(pairs[:, side]) for side in (0, 1)]
    dummies = rounding.dummies(*lengths) if rounding else (lengths[0][:0], lengths[1][:0])
    longest = rounding.reach(int(pairs.max())) if rounding else None
    source, target = (Layout.of(np.concatenate(both), longest) for both in zip(lengths, dummies, strict=True))
    draw = torch.Generator().manual_seed(1)
    source_S, target_T = (
        torch.randint(4, entries, (len(layout.segments),), generator=draw) for layout in (source, target)
    )
    labels = target_T.clone()
    real_source, real_target = (int(side.sum()) for side in lengths)
    labels[real_target:] = IGNORED
    numbers = np.arange(len(pairs))
    source, target = grouped(source), grouped(target, source)
    part = MicroBatch(numbers, source_S, target_T, labels, source, target, real_source, real_target)
    return part.to(the_device())


def local_batch(part: MicroBatch) -> LocalBatch:
    """Return a batch of one micro-batch."""
    tokens = {f"{side}_tokens": getattr(part, f"real_{side}_tokens") for side in ("source", "target")}
    return LocalBatch(epoch=0, number=0, micro_batches=[part], pairs=len(part.pairs), dropped=0, **tokens)


def trainer(
    shape: ModelConfig, size: int, compiled: bool = False, device: torch.device | None = None
) -> Trainer:
    """Return a trainer in bf16 of a random model with a joint vocabulary of `size`."""
    torch.manual_seed(1)
    device = device or the_device()
    entries = Vocabulary(("",) * size, end=0, start=0, unknown=1)
    model = Transformer(shape, entries, entries, joint=True)
    if device.type != "cpu":  # fake tensors cannot move
        model.to(device)
    config = TrainConfig(model=shape)
    optimizer, group = Optimizer(model, config.optimizer), Group(Process(), device, 60)
    run = compiled_for_all_sizes(model) if compiled else model
    return Trainer(model, optimizer, config, MixedPrecision("bf16", device), group, cast(Transformer, run))


if __name__ == "__main__":
    main()
