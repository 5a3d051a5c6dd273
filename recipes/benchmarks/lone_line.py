"""Time single lines: ours and CTranslate2 with the same weights. Print tables.

python -m recipes.benchmarks.lone_line --model MODEL                   needs NMT_DATA and ctranslate2

MODEL translates English to German. All search as in `translate.py`. Idle
processes with one or two threads get the same lines one at a time, in turns. Ours, with all threads, is
compared with the faster of two CTranslate2 processes of its precision. Lines whose two outputs differ in
length by a tenth or more are not compared, because rounding lets weak models end at different lengths.

A decoder step reads all weights of the decoder once. The floor is the time for that at the highest rate at
which all threads read memory between lines. It leaves out the encoder, attention and search.
"""

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click
import torch

from nmt_cli.checkpoints.finding import find_model
from nmt_cli.model.transformer import Transformer
from recipes.benchmarks import machine
from recipes.benchmarks.machine import THREADS
from recipes.benchmarks.translation_peers import BEAM, BEAMS, Ids
from recipes.benchmarks.translation_processes import Process, Run, contestants, prepare, started
from recipes.benchmarks.translation_texts import multi30k

PAUSE_SECONDS = 0.1
READ_NUMBERS = 60_000_000
"""More than fit into the caches of a processor."""

PEERS = {"nmt fp32": "CTranslate2 fp32", "nmt int8": "CTranslate2 int8"}
ALIKE = 0.1
"""Two outputs of a line are compared if their lengths differ by less than this share."""

BYTES = {"nmt fp32": 4, "nmt int8": 1}
"""Bytes of a weight."""

Key = tuple[str, int]
"""Name and number of threads of a translator."""


@dataclass
class Alone:
    """The measurements of one translator."""

    process: Process
    runs: dict[int, list[Run]] = field(default_factory=lambda: {beam: [] for beam in BEAMS})
    """By beam, a run of each line."""

    bytes: int = 0
    """Memory after all runs."""

    def milliseconds(self, beam: int) -> float:
        """Return the time of the median line with this beam size."""
        return 1000 * statistics.median(run.seconds for run in self.runs[beam])


@click.command(help=machine.method(__doc__), context_settings={"show_default": True})
@click.option("--model", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--lines", default=30)
def main(model: Path, lines: int) -> None:
    """Measure the time of a single line."""
    machine.begin("lone_line")
    with machine.scratch() as folder, ExitStack() as stack:
        prepared = prepare(find_model(model), folder)
        text = multi30k(prepared.identity.tokenizers, lines)
        seen = {
            (one.name, threads): Alone(stack.enter_context(started(one, folder, workers)))
            for one in contestants()
            for threads, workers in one.lone.items()
        }
        rates = _translated(seen, text.sources)
        for one in seen.values():
            one.bytes = machine.memory_bytes(one.process.session)
        _print_times(seen)
        _print_ratios(seen, prepared.transformer, max(rates))


def _translated(seen: Mapping[Key, Alone], sources: Ids) -> list[float]:
    """Add each translator's run of each line to `seen`. Return rates of reading memory in bytes/s."""
    rates, numbers = [], torch.ones(READ_NUMBERS)
    for one in seen.values():
        for beam in BEAMS:
            one.process.ask(sources[:BEAM], 1, beam)
    for beam in BEAMS:
        for source in sources:
            for one in seen.values():
                time.sleep(PAUSE_SECONDS)
                one.runs[beam].append(one.process.ask([source], 1, beam))
            began = time.perf_counter()
            numbers.sum()
            rates.append(4 * READ_NUMBERS / (time.perf_counter() - began))
    return rates


def _print_times(seen: Mapping[Key, Alone]) -> None:
    print("\nThe median line, ms\n")
    heads = [
        f"beam {beam}, {count} thread{'s' * (count > 1)}" for beam in BEAMS for count in range(1, THREADS + 1)
    ]
    heads += ["start-up, s", "of which loading", "MB after"]
    machine.print_head("", *heads)
    for name in dict.fromkeys(name for name, _ in seen):
        each = [seen[name, count] for count in range(1, THREADS + 1)]
        cells = [f"{one.milliseconds(beam):.0f}" for beam in BEAMS for one in each]
        cells += [f"{each[-1].process.start_seconds:.1f}", f"{each[-1].process.load_seconds:.1f}"]
        machine.print_row(name, *cells, f"{each[-1].bytes / 1e6:,.0f}")


def _print_ratios(seen: Mapping[Key, Alone], model: Transformer, rate: float) -> None:
    """Print our times beside those of CTranslate2, and the floor."""
    weights = sum(each.numel() for each in model.decoder.parameters()) + model.output_matrix.numel()
    print(f"\nMemory was read at up to {rate / 1e9:.1f} GB/s. A step reads {weights / 1e6:.1f} M weights\n")
    heads = ["beam", "lines", "CTranslate2, ms", "ours, ms", "median ratio", "subwords per line", "floor, ms"]
    machine.print_head("", *heads)
    for name in dict.fromkeys(name for name, _ in seen):
        plain = name.removesuffix(", own rule")
        for beam in BEAMS if plain in PEERS else ():
            ours = seen[name, THREADS].runs[beam]
            each = [_alike(ours, seen[PEERS[plain], count].runs[beam]) for count in range(1, THREADS + 1)]
            pairs = min(each, key=lambda pairs: _median([theirs.seconds for _, theirs in pairs]))
            pieces = _median([len(mine.targets[0]) + 1 for mine, _ in pairs])
            cells = [f"{len(pairs)}", f"{1000 * _median([theirs.seconds for _, theirs in pairs]):.0f}"]
            cells += [f"{1000 * _median([mine.seconds for mine, _ in pairs]):.0f}"]
            cells += [f"{_median([mine.seconds / theirs.seconds for mine, theirs in pairs]):.2f} x"]
            cells += [f"{pieces:.0f}", f"{1000 * pieces * weights * BYTES[plain] / rate:.0f}"]
            machine.print_row(name, beam, *cells)


def _alike(ours: Sequence[Run], theirs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Return the pairs of runs whose outputs have similar lengths."""
    pairs = []
    for pair in zip(ours, theirs, strict=True):
        least, most = sorted(len(run.targets[0]) + 1 for run in pair)
        if most < (1 + ALIKE) * least:
            pairs.append(pair)
    return pairs


def _median(numbers: Sequence[float]) -> float:
    return statistics.median(numbers) if numbers else math.inf


if __name__ == "__main__":
    main()
