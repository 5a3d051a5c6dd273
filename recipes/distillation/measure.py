"""Measure the start-up, the speed and the size of models, and print them as JSON.

Run `python recipes/distillation/measure.py --help`.
"""

import argparse
import json
import resource
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

Precision = Literal["fp32", "int8"]


def measured(
    text: Path, models: Sequence[Path], precision: Precision, beam: int, shortlist: bool
) -> dict[str, Any]:
    """Return the processor seconds of this process up to the first translation, lines of `text` per processor
    second, the size of the weights in bytes, and the processor. One thread translates."""
    from nmt_cli.api import load
    from nmt_cli.checkpoints.finding import weights_size
    from nmt_cli.runtime.devices import processor_name

    lines = text.read_text("utf-8").split("\n")[:-1]
    with load(*models, device="cpu", threads=1, precision=precision) as model:
        search = replace(model.config.search, beam=beam, shortlist=shortlist)
        model.translate(lines[:1], search)
        start_up = time.process_time()
        model.translate(lines, search)
        seconds = time.process_time() - start_up
    return {
        **{"models": len(models), "precision": precision, "beam": beam},
        **{"start_up": start_up, "lines_per_second": len(lines) / seconds},
        **{"bytes": sum(map(weights_size, models)), "processor": processor_name()},
    }


def measured_in_bergamot(text: Path, package: Path) -> dict[str, Any]:
    """Return the same as `measured` for an export for Bergamot, which translates in a process of its own. The
    size is that of the whole package."""
    from nmt_cli.interop import bergamot
    from nmt_cli.runtime.devices import processor_name

    lines = text.read_text("utf-8").split("\n")[:-1]
    seconds = []
    for some in (lines[:1], lines):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        bergamot.translate(package, some, len(some))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    size = sum(path.stat().st_size for path in package.iterdir())
    return {
        **{"models": 1, "precision": "int8", "beam": 1, "start_up": seconds[0]},
        **{"lines_per_second": (len(lines) - 1) / (seconds[1] - seconds[0])},
        **{"bytes": size, "processor": processor_name()},
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Measure models on one thread of the CPU.")
    parser.add_argument("text", type=Path, help="lines to translate")
    parser.add_argument("models", type=Path, nargs="+", help="a model, or the models of an ensemble")
    parser.add_argument("--precision", choices=("fp32", "int8"), default="int8")
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--shortlist", choices=("true", "false"), default="false")
    parser.add_argument("--engine", choices=("nmt", "bergamot"), default="nmt")
    options = parser.parse_args()
    if options.engine == "bergamot":
        result = measured_in_bergamot(options.text, options.models[0])
    else:
        uses = options.shortlist == "true"
        result = measured(options.text, options.models, options.precision, options.beam, uses)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
