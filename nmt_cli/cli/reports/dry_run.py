"""What `nmt train --dry-run` says of the plan, on stderr; its stdout is the settings alone."""

from collections.abc import Iterator

import click

from nmt_cli.errors import printable
from nmt_cli.training.setup.dry_run import Forecast
from nmt_cli.units import duration, size


def show(forecast: Forecast, devices: int, kind: str) -> None:
    """Print the forecast for so many devices of a kind."""
    lines = list(_lines(forecast, devices, kind))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        click.echo(f"{name:<{width}}  {value}", err=True)


def _lines(forecast: Forecast, devices: int, kind: str) -> Iterator[tuple[str, str]]:
    epoch, trial, disk = forecast.epoch, forecast.trial, forecast.disk
    frozen = forecast.parameters - forecast.trained
    yield "parameters", f"{forecast.parameters:,}" + (f", {frozen:,} of them frozen" if frozen else "")
    dropped = f", {epoch.dropped:,} left out as too long" if epoch.dropped else ""
    of = f" (an epoch of {printable(epoch.of)})" if epoch.of else ""
    yield "batches an epoch", f"{epoch.batches:,} of {epoch.pairs:,} pairs{dropped}{of}"
    source, target = epoch.source_tokens / epoch.batches, epoch.target_tokens / epoch.batches
    pieces = f"{forecast.micro.count:.1f} micro-batches on each of {devices} {kind}"
    yield "tokens a batch", f"{source:,.0f} source + {target:,.0f} target on average, {pieces}"
    yield "filler", f"{forecast.micro.filler:.2%}"
    yield "steps", f"{forecast.steps:,}, {forecast.steps / epoch.batches:.1f} epochs"
    yield (
        "memory",
        f"{size(trial.memory)} at most, measured with the longest batch ({trial.tokens:,} tokens); "
        f"{size(forecast.weights_memory)} of it are weights, gradients and optimiser",
    )
    yield (
        "checkpoints",
        f"{size(disk.checkpoint)} each, at most {disk.count} at a time, "
        f"{size(disk.checkpoint * disk.count)} of {size(disk.free)} that are free",
    )
    yield "model FLOPs", f"{forecast.flops:.2e}"
    yield (
        "time",
        f"about {duration(forecast.seconds)}, by the longest batch, without validation",
    )
