"""Time translation on two CPU threads: ours and others, with the same weights. Print tables.

python -m recipes.benchmarks.translate --model MODEL                   needs NMT_DATA and ctranslate2

MODEL translates English to German. All search with a beam of 4, divide sums of log-probabilities by n^0.6,
and may write 50 subwords more than they read. A search ends with four finished hypotheses. Ours runs once
more with its default rule (`own rule`). Input and output are ids. All take turns, with the batches that were
fastest in a short trial (`2 x 64`: two workers with one thread and 64 sentences each).

The floor is the time of the matrix products of a full beam at the rate of a large product in fp32, measured
beside each run: the encoder, and four decoder rows for each output token.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from nmt_cli.checkpoints.finding import find_model
from nmt_cli.checkpoints.model_folder import LoadedModel
from nmt_cli.model.cost import training_flops
from recipes.benchmarks import machine
from recipes.benchmarks import translation_peers as peers
from recipes.benchmarks import translation_processes as processes
from recipes.benchmarks.machine import NMT, THREADS
from recipes.benchmarks.translation_peers import BEAM
from recipes.benchmarks.translation_processes import OURS, Contestant, Process, Run
from recipes.benchmarks.translation_texts import Text, multi30k, wmt_like

TRIED = 256
"""Sentences of the trial, of medium length."""


@dataclass(frozen=True)
class Fastest:
    """The fastest number of workers and batch sizes of a translator."""

    workers: int
    batches: Mapping[str, int]
    """By name of the text."""


@dataclass
class Seen:
    """The measurements of a translator."""

    plan: Fastest
    runs: dict[str, list[Run]] = field(default_factory=dict)


@click.command(help=machine.method(__doc__), context_settings={"show_default": True})
@click.option("--model", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--rounds", default=3, help="Number of times that each translates each text.")
@click.option("--sentences", default=1000, help="Sentences of Multi30k. The mix has half of that.")
def main(model: Path, rounds: int, sentences: int) -> None:
    """Measure sentences and tokens per second, and memory."""
    machine.begin("translate")
    with machine.scratch() as folder:
        prepared = processes.prepare(find_model(model), folder)
        tokenizers = prepared.identity.tokenizers
        texts = [multi30k(tokenizers, sentences), wmt_like(tokenizers, sentences // 2)]
        for text in texts:
            lengths = [len(source) - 1 for source in text.sources]
            mean = statistics.mean(lengths)
            print(f"{text.name}: {len(lengths):,} sentences of {mean:.1f} subwords, at most {max(lengths)}")
        seen = _compared(processes.contestants(), folder, texts, rounds)
        for text in texts:
            _print_table(prepared, text, seen)
        for text in texts:
            _print_whole_commands(folder, text)


def _compared(
    listed: Sequence[Contestant], folder: Path, texts: Sequence[Text], rounds: int
) -> dict[str, Seen]:
    """Return the measurements by name. All processes live at the same time, but only one works."""
    seen = {one.name: Seen(_tried(one, folder, texts)) for one in listed}
    with ExitStack() as stack:
        running = {
            one.name: stack.enter_context(processes.started(one, folder, seen[one.name].plan.workers))
            for one in listed
        }
        for process in running.values():
            process.ask(texts[0].part(BEAM), BEAM)
        for _ in range(rounds):
            for text in texts:
                for name, process in running.items():
                    batch = seen[name].plan.batches[text.name]
                    seen[name].runs.setdefault(text.name, []).append(_watched(name, process, text, batch))
    return seen


def _tried(contestant: Contestant, folder: Path, texts: Sequence[Text]) -> Fastest:
    """Return the fastest number of workers and batch sizes. Try all."""
    plans: list[tuple[float, Fastest]] = []
    for workers in contestant.workers:
        batches: dict[str, int] = {}
        total = 0.0
        with processes.started(contestant, folder, workers) as process:
            for text in texts:
                some = text.part(TRIED)
                process.ask(text.part(BEAM), BEAM)
                seconds = {batch: process.ask(some, batch).seconds for batch in contestant.batches}
                batches[text.name] = min(seconds, key=seconds.__getitem__)
                total += min(seconds.values())
                speeds = ", ".join(f"{batch}: {len(some) / took:.1f}" for batch, took in seconds.items())
                message = f"{contestant.name}, {workers} workers, {text.name}, batches of {speeds}"
                print(message, file=sys.stderr)
        plans.append((total, Fastest(workers, batches)))
    return min(plans, key=lambda plan: plan[0])[1]


def _watched(name: str, process: Process, text: Text, batch: int) -> Run:
    """Return a run on `text` with its memory, processor time and the load by other processes."""
    machine.wait_for_quiet()
    _, before = machine.product_rates()
    busy, used, began = machine.busy_seconds(), machine.used_seconds(process.session), time.perf_counter()
    with machine.watched_memory(process.session) as peak_bytes:
        run = process.ask(text.sources, batch)
    mine = machine.used_seconds(process.session) - used
    others = (machine.busy_seconds() - busy - mine) / (time.perf_counter() - began) / THREADS
    rate = max(before, machine.product_rates()[1])
    speed = f"{len(text.sources) / run.seconds:.1f} sentences/s, others {others:.1%}, {rate / 1e9:.0f} GF/s"
    print(f"{name}, {text.name}: {speed}", file=sys.stderr, flush=True)
    run = replace(run, peak_bytes=max(peak_bytes), core_seconds=mine)
    return replace(run, product_rate=rate, others=max(others, 0.0))


def _print_table(model: LoadedModel, text: Text, seen: Mapping[str, Seen]) -> None:
    """Print speeds, relative to ours and to the floor."""
    ours = {name: seen[name].runs[text.name] for name in OURS}
    exact, tokenizer = ours["nmt fp32"][0].targets, model.identity.tokenizers.target
    print(f"\n{text.name}\n")
    machine.print_head(
        *("", "sentences/s: each round", "median", "output tokens/s"),
        *(*(f"`{name}` / this" for name in OURS), "share of floor", "core seconds"),
        *("batch", "BLEU", "same as `nmt fp32`", "MB, sampled every 2 s", "others' share of the cores"),
    )
    for name, one in seen.items():
        runs = one.runs[text.name]
        tokens = sum(len(target) + 1 for target in runs[0].targets)
        same = sum(mine == other for mine, other in zip(exact, runs[0].targets, strict=True))
        speeds = [len(text.sources) / run.seconds for run in runs]
        cells = [name, ", ".join(f"{speed:.1f}" for speed in speeds), f"{statistics.median(speeds):.1f}"]
        cells += [f"{statistics.median(tokens / run.seconds for run in runs):,.0f}"]
        for each in ours.values():
            pairs = zip(each, runs, strict=True)
            cells += [f"{statistics.median(other.seconds / mine.seconds for mine, other in pairs):.2f} x"]
        cells += [f"{statistics.median(_floor_seconds(model, text, run) / run.seconds for run in runs):.0%}"]
        cells += [f"{statistics.median(run.core_seconds for run in runs):.0f}"]
        cells += [f"{one.plan.workers} x {one.plan.batches[text.name]}"]
        cells += [f"{_bleu(text, [tokenizer.restore(tokenizer.decode(ids)) for ids in runs[0].targets]):.2f}"]
        cells += [f"{same:,} of {len(text.sources):,}", f"{max(run.peak_bytes for run in runs) / 1e6:,.0f}"]
        cells += [f"{max(run.others for run in runs):.0%}"]
        machine.print_row(*cells)


def _floor_seconds(model: LoadedModel, text: Text, run: Run) -> float:
    """Return the least time of a run: the matrix products for its sources and for a full beam."""
    read = sum(map(len, text.sources))
    written = sum(len(target) + 1 for target in run.targets)
    vocabulary = len(model.transformer.target_vocabulary)
    flops = training_flops(model.identity.config, vocabulary, read, BEAM * written) / 3
    return flops / run.product_rate


def _bleu(text: Text, lines: Sequence[str]) -> float:
    from sacrebleu.metrics.bleu import BLEU

    return float(BLEU().corpus_score(lines, [text.references]).score)


def _print_whole_commands(folder: Path, text: Text) -> None:
    """Print the time of `nmt translate` from start to end, with its default search."""
    print(f"\n`nmt translate` of {text.name}, the whole command\n")
    machine.print_head("precision", "seconds", "sentences/s", "BLEU")
    lines = "".join(f"{line}\n" for line in text.lines)
    for precision in ("fp32", "int8"):
        command = [*NMT, "translate", str(folder / peers.MODEL), "--precision", precision]
        command += ["--threads", str(THREADS)]
        began = time.perf_counter()
        done = subprocess.run(command, input=lines, capture_output=True, encoding="utf-8")
        seconds = time.perf_counter() - began
        if done.returncode:
            raise click.ClickException(f"nmt translate: {done.stderr.strip()[-500:]}")
        bleu = _bleu(text, done.stdout.removesuffix("\n").split("\n"))
        machine.print_row(precision, f"{seconds:.1f}", f"{len(text.lines) / seconds:.1f}", f"{bleu:.2f}")


if __name__ == "__main__":
    main()
