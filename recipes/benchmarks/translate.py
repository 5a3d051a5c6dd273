"""Times translation on two threads of a CPU: ours and others, with the same weights. Prints tables.

python -m recipes.benchmarks.translate --model MODEL [--fairseq BIN] [--transformers]     needs NMT_DATA

MODEL translates English to German and is built like the base model; BIN is the bin folder of a virtual
environment that has fairseq. All search with a beam of 4, divide sums of log-probabilities by n^0.6, and may
write 50 pieces more than they read. A search ends at four endings; ours runs once more by its own rule,
which is the default (`own rule`). Ids go in and ids come out, and all take turns, each in the batches
that it was fastest with in a short trial (`2 x 64`: two workers that have a thread and 64 sentences each);
transformers, which is slow, in batches of 64.

The floor is what the matrix products of a full beam would take at the rate of a large product in fp32, which
is measured beside each run: the encoder, and four rows of the decoder for each token of the output.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from nmt_cli.checkpoints.finding import find_model
from nmt_cli.checkpoints.model_folder import Model
from nmt_cli.model.cost import training_flops
from recipes.benchmarks import train as machine
from recipes.benchmarks import translation_peers as peers
from recipes.benchmarks.translation_peers import BEAM, Ids
from recipes.benchmarks.translation_processes import (
    OURS,
    THREADS,
    Contestant,
    Process,
    Run,
    begin,
    contestants,
    prepare,
    started,
)
from recipes.benchmarks.translation_texts import Text, multi30k, wmt_like

TRIED = 256
"""Sentences of the trial, of middling length."""


@dataclass(frozen=True)
class Fastest:
    """What a contestant was fastest with."""

    workers: int
    batches: Mapping[str, int]
    """By the name of the text."""


@dataclass
class Seen:
    """All that was measured of a contestant."""

    plan: Fastest
    runs: dict[str, list[Run]] = field(default_factory=dict)


@click.command(context_settings={"show_default": True})
@click.option("--model", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--fairseq", type=machine.BIN)
@click.option("--transformers", is_flag=True, help="Also measure it; it takes longer than all others.")
@click.option("--rounds", default=3, help="How often each translates each text.")
@click.option("--sentences", default=1000, help="Of Multi30k; the mix has half as many.")
def main(model: Path, fairseq: Path | None, transformers: bool, rounds: int, sentences: int) -> None:
    """Measure sentences and tokens a second, and memory."""
    begin("translate")
    with tempfile.TemporaryDirectory(prefix="nmt-benchmark-") as scratch:
        folder = Path(scratch)
        found = prepare(find_model(model), folder)
        tokenizers = found.identity.tokenizers
        texts = [multi30k(tokenizers, sentences), wmt_like(tokenizers, sentences // 2)]
        for text in texts:
            lengths = [len(source) - 1 for source in text.sources]
            told = (
                f"{len(lengths):,} sentences of {statistics.mean(lengths):.1f} pieces, at most {max(lengths)}"
            )
            print(f"{text.name}: {told}")
        seen = _compared(contestants(folder, fairseq, transformers), folder, texts, rounds)
        for text in texts:
            _print_table(found, text, seen)
        for text in texts:
            _print_whole_commands(folder, text)


def _compared(
    listed: Sequence[Contestant], folder: Path, texts: Sequence[Text], rounds: int
) -> dict[str, Seen]:
    """What each did, by name; the processes live side by side, and one at a time is at work."""
    seen = {one.name: Seen(_tried(one, folder, texts)) for one in listed}
    with ExitStack() as stack:
        processes = {
            one.name: stack.enter_context(started(one, folder, seen[one.name].plan.workers)) for one in listed
        }
        for process in processes.values():
            process.ask(texts[0].part(BEAM), BEAM)
        for _ in range(rounds):
            for text in texts:
                for name, process in processes.items():
                    batch = seen[name].plan.batches[text.name]
                    seen[name].runs.setdefault(text.name, []).append(_watched(name, process, text, batch))
    return seen


def _tried(contestant: Contestant, folder: Path, texts: Sequence[Text]) -> Fastest:
    """Try all batches with all ways to share out the threads, if there is a choice."""
    if len(contestant.workers) == len(contestant.batches) == 1:
        return Fastest(
            contestant.workers[0], dict.fromkeys((text.name for text in texts), contestant.batches[0])
        )
    plans: list[tuple[float, Fastest]] = []
    for workers in contestant.workers:
        batches: dict[str, int] = {}
        total = 0.0
        with started(contestant, folder, workers) as process:
            for text in texts:
                some = text.part(TRIED)
                process.ask(text.part(BEAM), BEAM)
                seconds = {batch: process.ask(some, batch).seconds for batch in contestant.batches}
                batches[text.name] = min(seconds, key=seconds.__getitem__)
                total += min(seconds.values())
                told = ", ".join(f"{batch}: {len(some) / took:.1f}" for batch, took in seconds.items())
                print(
                    f"{contestant.name}, {workers} workers, {text.name}, batches of {told}", file=sys.stderr
                )
        plans.append((total, Fastest(workers, batches)))
    return min(plans, key=lambda plan: plan[0])[1]


def _watched(name: str, process: Process, text: Text, batch: int) -> Run:
    """A run, and what else went on."""
    machine._wait_for_quiet()
    _, before = machine._product_rates()
    busy, used, began = machine._busy_seconds(), machine._used_seconds(process.session), time.perf_counter()
    with machine._watched_memory(process.session) as peak_bytes:
        run = process.ask(text.sources, batch)
    mine = machine._used_seconds(process.session) - used
    others = (machine._busy_seconds() - busy - mine) / (time.perf_counter() - began) / THREADS
    rate = max(before, machine._product_rates()[1])
    told = f"{len(text.sources) / run.seconds:.1f} sentences/s, others {others:.1%}, {rate / 1e9:.0f} GF/s"
    print(f"{name}, {text.name}: {told}", file=sys.stderr, flush=True)
    run = replace(run, peak_bytes=max(peak_bytes), core_seconds=mine)
    return replace(run, product_rate=rate, others=max(others, 0.0))


def _print_table(model: Model, text: Text, seen: Mapping[str, Seen]) -> None:
    """Speeds, compared with ours, and with the floor."""
    ours = {name: seen[name].runs[text.name] for name in OURS}
    exact = ours["nmt fp32"][0].targets
    print(f"\n{text.name}\n")
    head = ["", "sentences/s: each round", "median", "output tokens/s", *(f"`{name}` does" for name in OURS)]
    head += [
        "share of floor",
        "core seconds",
        "steps",
        "rows",
        "batch",
        "BLEU",
        "same as `nmt fp32`",
        "MB, looked at every 2 s",
    ]
    head += ["others' share of the cores"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
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
        cells += [f"{count:,}" if count else "not told" for count in (runs[0].steps, runs[0].rows)]
        cells += [f"{one.plan.workers} x {one.plan.batches[text.name]}"]
        cells += [f"{_bleu(text, _lines(model, runs[0].targets)):.2f}"]
        cells += [f"{same:,} of {len(text.sources):,}", f"{max(run.peak_bytes for run in runs) / 1e6:,.0f}"]
        cells += [f"{max(run.others for run in runs):.0%}"]
        print(f"| {' | '.join(cells)} |", flush=True)


def _floor_seconds(model: Model, text: Text, run: Run) -> float:
    """What the products of a full beam over this output would take; there is no way back as in training."""
    read = sum(map(len, text.sources))
    written = sum(len(target) + 1 for target in run.targets)
    vocabulary = len(model.transformer.target_vocabulary)
    flops = training_flops(model.identity.config, vocabulary, read, BEAM * written) / 3
    return flops / run.product_rate


def _lines(model: Model, targets: Ids) -> list[str]:
    tokenizer = model.identity.tokenizers.target
    return [tokenizer.restore(tokenizer.decode(target)) for target in targets]


def _bleu(text: Text, lines: Sequence[str]) -> float:
    from sacrebleu.metrics.bleu import BLEU

    return float(BLEU().corpus_score(lines, [text.references]).score)


def _print_whole_commands(folder: Path, text: Text) -> None:
    """`nmt translate` as it is used, from its start to its end, under its own length rule."""
    print(f"\n`nmt translate` of {text.name}, the whole command\n")
    print("| precision | seconds | sentences/s | BLEU |\n|---|---|---|---|")
    for precision in ("fp32", "int8"):
        command = [sys.executable, "-m", "nmt_cli", "translate", str(folder / peers.MODEL)]
        began = time.perf_counter()
        done = subprocess.run(
            [*command, "--precision", precision, "--threads", str(THREADS)],
            input="".join(f"{line}\n" for line in text.lines),
            capture_output=True,
            encoding="utf-8",
        )
        seconds = time.perf_counter() - began
        if done.returncode:
            raise click.ClickException(f"nmt translate: {done.stderr.strip()[-500:]}")
        bleu = _bleu(text, done.stdout.removesuffix("\n").split("\n"))
        print(f"| {precision} | {seconds:.1f} | {len(text.lines) / seconds:.1f} | {bleu:.2f} |", flush=True)


if __name__ == "__main__":
    main()
