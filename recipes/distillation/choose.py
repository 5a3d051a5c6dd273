"""Choose the targets of each training pair among a teacher's translations, and drop the worst pairs.

Run `python recipes/distillation/choose.py --help`.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import cycle, islice, zip_longest
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.chrf import CHRF

Scores = npt.NDArray[np.float64]

LINES_AT_ONCE = 500
"""Lines that a process gets at a time."""


def closest(reference: str, hypotheses: Sequence[str], number: int) -> list[str]:
    """Return the `number` hypotheses with the highest chrF against the reference, best first. In a tie, and
    without a reference, the order is that of `hypotheses`. Skip empty hypotheses and repeated ones. If there
    are fewer than `number`, begin again with the best one. Without any, return empty ones."""
    candidates = [*dict.fromkeys(text for text in hypotheses if text.strip())] or [""]
    if reference.strip() and (number > 1 or reference != candidates[0]):
        candidates.sort(key=lambda text: -float(_chrf().sentence_score(text, [reference]).score))
    return [*islice(cycle(candidates), number)]


def from_n_best(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the hypotheses of each sentence, best first, from the output of `nmt translate --n-best`. Raise
    `ValueError` unless the numbers of sentences count from 0."""
    hypotheses: list[str] = []
    number = 0
    for line in lines:
        label, _, rest = line.partition(" ||| ")
        fields = rest.rsplit(" ||| ", 2)
        if hypotheses and label == str(number + 1):
            yield hypotheses
            hypotheses, number = [], number + 1
        if len(fields) != 3 or label != str(number):
            raise ValueError(f"{line[:60]!r} is not a translation of sentence {number:,} or the next one")
        hypotheses.append(fields[0])
    if hypotheses:
        yield hypotheses


def together(columns: Mapping[str, Iterable[Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield the items of all columns side by side. Raise `ValueError` with two names if one ends early."""
    end = object()
    for number, row in enumerate(zip_longest(*columns.values(), fillvalue=end)):
        names = {item is end: name for name, item in zip(columns, row, strict=True)}
        if True in names:
            raise ValueError(f"{names[True]} has {number:,} lines, but {names[False]} has more")
        yield row


def kept(scores: Scores, percent: float) -> npt.NDArray[np.bool_]:
    """Return which scores to keep, [N], without the lowest `percent`. NaN is never kept and does not count.
    Of equal scores, all or none are kept, so fewer may be dropped."""
    numbers = np.sort(scores[~np.isnan(scores)])
    dropped = int(len(numbers) * percent / 100)
    return scores >= (numbers[dropped] if dropped < len(numbers) else np.inf)


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a file without their ends. Replace invalid UTF-8, as `nmt translate` does."""
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            yield line.rstrip("\r\n")


@cache
def _chrf() -> CHRF:
    """Return the metric, one per process."""
    return CHRF()


def _chosen(row: tuple[str, str, list[str]], number: int) -> list[str]:
    """Return `closest` for a source, a reference and hypotheses, or empty ones for an empty source."""
    source, reference, hypotheses = row
    return closest(reference, hypotheses if source.strip() else [], number)


def best(source: Path, hypotheses: Path, form: str, reference: Path | None, number: int) -> Iterator[str]:
    """Yield the `number` closest hypotheses of each source line, or "" without a source or hypothesis."""
    sources, texts = lines_of(source), lines_of(hypotheses)
    lists = from_n_best(texts) if form == "n-best" else (text.split("\t") for text in texts)
    columns: dict[str, Iterable[Any]] = {str(source): sources, str(hypotheses): lists}
    if reference:
        columns[str(reference)] = lines_of(reference)
    rows = [(row[0], row[2] if reference else "", row[1]) for row in together(columns)]
    with Pool() as pool:
        for chosen in pool.imap(partial(_chosen, number=number), rows, LINES_AT_ONCE):
            yield from chosen


def without_worst(source: Path, targets: Path, log_probabilities: Path, percent: float) -> Iterator[str]:
    """Yield the targets. The `percent` whose sources have the lowest log-probabilities per character are
    replaced by "". Empty targets do not count."""
    names = source, targets, log_probabilities
    rows = together({str(name): lines_of(name) for name in names})
    scores = np.array(
        [
            float(log_probability) / (len(text) + 1) if target.strip() else np.nan
            for text, target, log_probability in rows
        ]
    )
    for target, keeps in zip(lines_of(targets), kept(scores, percent), strict=True):
        yield target if keeps else ""


def _percent(text: str) -> float:
    """Return the percentage that an option gives. Raise ArgumentTypeError unless it is from 0 to 100."""
    try:
        percent = float(text)
    except ValueError:
        percent = np.nan
    if not 0 <= percent <= 100:
        raise argparse.ArgumentTypeError(f"'{text}' is not a percentage. Give a number from 0 to 100.")
    return percent


def _options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Choose training targets for a student.")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("best", help="print the hypotheses closest to the references by chrF")
    command.add_argument("source", type=Path, help="source lines")
    command.add_argument("hypotheses", type=Path, help="translations of the source lines")
    command.add_argument(
        "--form", choices=("n-best", "tsv"), required=True, help="format of the translations"
    )
    command.add_argument("--reference", type=Path, help="reference lines")
    command.add_argument(
        "--number", type=int, default=1, help="hypotheses of each line, in lines of their own"
    )
    command.set_defaults(run=best)
    command = commands.add_parser("drop", help="print targets, the worst ones replaced by empty lines")
    command.add_argument("source", type=Path, help="source lines")
    command.add_argument("targets", type=Path, help="target lines")
    command.add_argument(
        "log_probabilities", type=Path, help="log-probabilities of source lines given targets"
    )
    command.add_argument("--percent", type=_percent, required=True, help="share of the pairs to drop")
    command.set_defaults(run=without_worst)
    return parser.parse_args()


def main() -> None:
    """Run the command. Exit with an error if the files do not fit together."""
    arguments = vars(_options())
    run = arguments.pop("run")
    try:
        for text in run(**arguments):
            sys.stdout.buffer.write(f"{text}\n".encode())
    except ValueError as error:
        sys.exit(f"Error: {error}. Make both files from the same text.")


if __name__ == "__main__":
    main()
