"""What `nmt preprocess` says when it is done."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nmt_cli.data.cleaning.filters import REASONS
from nmt_cli.data.cleaning.report import CorpusReport, FilterReport
from nmt_cli.data.dataset import FILTER_PAGE, FILTER_REPORT, TRAIN
from nmt_cli.data.preprocessing.preprocess import Outcome
from nmt_cli.errors import printable

PIPED_WIDTH = 160
"""Tables are not squeezed into 80 columns where no terminal asks for it."""

NAMES_SHOWN = 5


def show(out: Path, outcome: Outcome, quiet: bool) -> None:
    """Print to stderr: warnings always; the filter report and the dataset's sizes unless `quiet`."""
    if outcome.remade:
        count, names = len(outcome.remade), ", ".join(outcome.remade[:NAMES_SHOWN])
        warning = "parts of an earlier run did not match their checksums and were made again, such as"
        click.echo(f"Warning: {count:,} {warning} {names}.", err=True)
    done, parts = outcome.parts
    if parts:
        if not quiet:
            then = "; the same command without --shard makes the dataset" if done == parts else ""
            click.echo(printable(f"{done:,} of {parts:,} parts of {out} are cleaned by now{then}."), err=True)
        return
    if outcome.report is None:
        if not quiet:
            click.echo(
                printable(f"{out} is up to date: same inputs, same settings, nothing to do."), err=True
            )
        return
    for warning in _warnings(outcome, outcome.report):
        click.echo(f"Warning: {printable(warning)}", err=True)
    if quiet:
        return
    console = Console(stderr=True, width=None if sys.stderr.isatty() else PIPED_WIDTH)
    console.print(_filter_table(outcome.report))
    console.print(_split_table(outcome))
    tokenizer = outcome.manifest["tokenizer"]
    sizes = (f"{tokenizer['source_vocabulary']:,}", f"{tokenizer['target_vocabulary']:,}")
    one = f"vocabulary: {sizes[0]} entries, joint"
    click.echo(one if tokenizer["joint"] else f"vocabularies: {' and '.join(sizes)} entries", err=True)
    page = f"its filter report, with samples, is {out / FILTER_PAGE} ({FILTER_REPORT} for programs)"
    click.echo(printable(f"{out} is finished; {page}"), err=True)


def _warnings(outcome: Outcome, report: FilterReport) -> Iterator[str]:
    train = outcome.manifest["splits"][TRAIN]
    if train["source_unknowns"] or train["target_unknowns"]:
        share = (train["source_unknowns"] + train["target_unknowns"]) / (
            train["source_tokens"] + train["target_tokens"]
        )
        yield f"{100 * share:.2g} % of the training tokens are unknown; tokenizer.byte_fallback spells them"
    for corpus in report.corpora:
        for reason, count in corpus.noted.counts.items():
            first = min(sample.number for sample in corpus.noted.samples[reason])
            where = f"{corpus.role} set {corpus.name}"
            yield f"{where}: {reason} in {count:,} of {corpus.read:,} pairs, kept (as in line {first:,})"


def _filter_table(report: FilterReport) -> Table:
    table = Table(title="Training pairs", title_justify="left")
    table.add_column("corpus")
    for name in ("read", "kept", *_reasons(report.of_role("train"))):
        table.add_column(name, justify="right")
    for corpus in report.of_role("train"):
        dropped = [corpus.dropped.counts[reason] for reason in _reasons(report.of_role("train"))]
        table.add_row(
            Text(printable(corpus.name)), *(f"{number:,}" for number in (corpus.read, corpus.kept, *dropped))
        )
    return table


def _reasons(corpora: list[CorpusReport]) -> list[str]:
    return [reason for reason in REASONS if any(corpus.dropped.counts[reason] for corpus in corpora)]


def _split_table(outcome: Outcome) -> Table:
    table = Table(title="Dataset", title_justify="left")
    for name in ("split", "role"):
        table.add_column(name)
    for name in ("pairs", "source tokens", "unknown", "target tokens", "unknown"):
        table.add_column(name, justify="right")
    for name, split in outcome.manifest["splits"].items():
        numbers = [
            split[key]
            for key in ("pairs", "source_tokens", "source_unknowns", "target_tokens", "target_unknowns")
        ]
        table.add_row(Text(printable(name)), split["role"], *(f"{number:,}" for number in numbers))
    return table
