"""What `nmt train --dry-run` says of the plan, on stderr; its stdout is the settings alone."""

from collections.abc import Iterator

import click

from nmt_cli.cli.train_report import time_left
from nmt_cli.errors import printable
from nmt_cli.training.assembling.dry_run import Forecast


def show(forecast: Forecast, devices: int, kind: str) -> None:
    """Print the forecast for so many devices of a kind."""
    lines = list(_lines(forecast, devices, kind))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        click.echo(f"{name:<{width}}  {value}", err=True)


def _lines(forecast: Forecast, devices: int, kind: str) -> Iterator[tuple[str, str]]:
    epoch, longest = forecast.epoch, forecast.longest
    frozen = forecast.parameters - forecast.trained
    yield "parameters", f"{forecast.parameters:,}" + (f", {frozen:,} of them frozen" if frozen else "")
    dropped = f", {epoch.dropped:,} left out as too long" if epoch.dropped else ""
    of = f" (an epoch of {printable(epoch.of)})" if epoch.of else ""
    yield "batches an epoch", f"{epoch.batches:,} of {epoch.pairs:,} pairs{dropped}{of}"
    source, target = epoch.source_tokens / epoch.batches, epoch.target_tokens / epoch.batches
    pieces = f"{forecast.micro_batches:.1f} micro-batches on each of {devices} {kind}"
    yield "tokens a batch", f"{source:,.0f} source + {target:,.0f} target on average, {pieces}"
    yield "filler", f"{forecast.filler:.2%}"
    yield "steps", f"{forecast.steps:,}, {forecast.steps / epoch.batches:.1f} epochs"
    yield (
        "memory",
        f"{_gb(longest.memory)} at most, measured with the longest batch ({longest.tokens:,} tokens); "
        f"{_gb(forecast.weights_memory)} of it are weights, gradients and optimiser",
    )
    yield (
        "checkpoints",
        f"{_gb(forecast.checkpoint)} each, at most {forecast.checkpoints} at a time, "
        f"{_gb(forecast.checkpoint * forecast.checkpoints)} of {_gb(forecast.free)} that are free",
    )
    yield "model FLOPs", f"{forecast.flops:.2e}"
    yield (
        "time",
        f"about {time_left(forecast.seconds)}, by the longest batch; validation and saving come on top",
    )


def _gb(size: int) -> str:
    return f"{size / 1e9:,.2f} GB" if size >= 1e7 else f"{size / 1e6:,.2f} MB"
