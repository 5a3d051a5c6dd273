"""The output of `nmt train --dry-run`: the plan of a run."""

from collections.abc import Iterator

import click

from nmt_cli.errors import printable
from nmt_cli.training.setup.dry_run import Forecast
from nmt_cli.units import duration, size


def show(forecast: Forecast, devices: int, kind: str) -> None:
    """Print the plan of a run to stdout, for `devices` devices of a `kind` such as "cuda"."""
    lines = list(_lines(forecast, devices, kind))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        click.echo(f"{name:<{width}}  {value}")


def _lines(forecast: Forecast, devices: int, kind: str) -> Iterator[tuple[str, str]]:
    """Yield names and values of the plan: parameters, batches, padding, steps, memory, checkpoints, FLOPs and
    time. `kind` is the type of the `devices`."""
    epoch, trial, disk = forecast.epoch, forecast.trial, forecast.disk
    frozen = forecast.parameters - forecast.trained
    yield "parameters", f"{forecast.parameters:,}" + (f" ({frozen:,} frozen)" if frozen else "")
    dropped = f", {epoch.dropped:,} left out as too long" if epoch.dropped else ""
    corpus = f" (an epoch of {printable(epoch.of)})" if epoch.of else ""
    yield "batches per epoch", f"{epoch.batches:,} of {epoch.pairs:,} pairs{dropped}{corpus}"
    source, target = epoch.source_tokens / epoch.batches, epoch.target_tokens / epoch.batches
    yield (
        "tokens per batch",
        f"{source:,.0f} source and {target:,.0f} target on average, "
        f"in {forecast.micro.count:.1f} micro-batches on each of {devices} {kind}",
    )
    yield "padding", f"{forecast.micro.filler:.2%}"
    epochs = forecast.steps / epoch.batches
    yield "steps", f"{forecast.steps:,} ({f'{epochs:,.0f}' if epochs >= 10 else f'{epochs:.1f}'} epochs)"
    yield (
        "memory",
        f"{size(trial.memory)} at most, measured with the longest batch ({trial.tokens:,} tokens); "
        f"{size(forecast.weights_memory)} for weights, gradients and optimiser",
    )
    yield (
        "checkpoints",
        f"{size(disk.checkpoint)} each, {size(disk.checkpoint * disk.count)} for at most "
        f"{disk.count} ({size(disk.free)} free)",
    )
    yield "model FLOPs", f"{forecast.flops:.2e}"
    yield "time", f"about {duration(forecast.seconds)} without validation, estimated from the longest batch"
