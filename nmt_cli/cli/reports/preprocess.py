"""The output of `nmt preprocess`: warnings and tables on stderr."""

from collections.abc import Iterator
from pathlib import Path

from rich.table import Table
from rich.text import Text

from nmt_cli.cli.options import printer, warn
from nmt_cli.cli.reports.tables import table_console
from nmt_cli.data.cleaning.filters import REASONS
from nmt_cli.data.cleaning.report import FilterReport
from nmt_cli.data.dataset import FILTER_PAGE, FILTER_REPORT, TRAIN
from nmt_cli.data.preprocessing.preprocess import Outcome
from nmt_cli.errors import printable

NAMES_SHOWN = 5
"""Number of damaged parts that the warning names."""


def show(out: Path, outcome: Outcome, quiet: bool) -> None:
    """Print the outcome of preprocessing to stderr. Warn of damaged parts, unknown tokens and problems of
    corpora. Unless `quiet`, print tables of pairs and splits, vocabulary sizes and file names. If nothing has
    changed, print only a line about it."""
    echo = printer(quiet)
    if outcome.remade:
        names = ", ".join(outcome.remade[:NAMES_SHOWN])
        warn(f"{len(outcome.remade):,} damaged parts of an earlier run were written again, such as {names}.")
    if outcome.report is None:
        echo(f"{out} is up to date: inputs and settings have not changed.")
        return
    for warning in _warnings(outcome, outcome.report):
        warn(warning)
    if quiet:
        return
    console = table_console(stderr=True)
    console.print(_filter_table(outcome.report))
    console.print(_split_table(outcome))
    tokenizer = outcome.manifest["tokenizer"]
    sizes = (f"{tokenizer['source_vocabulary']:,}", f"{tokenizer['target_vocabulary']:,}")
    joint = f"vocabulary: {sizes[0]} entries, joint"
    echo(joint if tokenizer["joint"] else f"vocabularies: {' and '.join(sizes)} entries")
    echo(f"filter report with samples: {out / FILTER_PAGE} (for programs: {FILTER_REPORT})")
    echo(f"{out} is complete")


def _warnings(outcome: Outcome, report: FilterReport) -> Iterator[str]:
    """Yield a warning with the share of unknown tokens, if any. Yield a warning for each problem of each
    corpus. The warning has the number of the first line, and the count of pairs, which were kept."""
    train = outcome.manifest["splits"][TRAIN]
    if train["source_unknowns"] or train["target_unknowns"]:
        share = (train["source_unknowns"] + train["target_unknowns"]) / (
            train["source_tokens"] + train["target_tokens"]
        )
        yield f"{100 * share:.2g} % of the training tokens are unknown. Set tokenizer.byte_fallback=true."
    for corpus in report.corpora:
        for reason, count in corpus.noted.counts.items():
            first = min(sample.number for sample in corpus.noted.samples[reason])
            pairs = f"{count:,} of {corpus.read:,} pairs"
            yield f"{corpus.role} set {corpus.name!r}: {reason} in {pairs} (kept; first: line {first:,})"


def _filter_table(report: FilterReport) -> Table:
    """Return a table of corpora, with the pairs read, kept, and dropped for each reason that occurred."""
    corpora = report.of_role("train")
    reasons = [reason for reason in REASONS if any(corpus.dropped.counts[reason] for corpus in corpora)]
    table = Table(title="Training pairs", title_justify="left")
    table.add_column("corpus")
    for name in ("read", "kept", *reasons):
        table.add_column(name, justify="right")
    for corpus in corpora:
        numbers = (corpus.read, corpus.kept, *(corpus.dropped.counts[reason] for reason in reasons))
        table.add_row(Text(printable(corpus.name)), *(f"{number:,}" for number in numbers))
    return table


def _split_table(outcome: Outcome) -> Table:
    """Return a table of all splits with role, pairs, and tokens and unknown tokens of both languages."""
    table = Table(title="Dataset", title_justify="left")
    for name in ("split", "role"):
        table.add_column(name)
    for name in ("pairs", "source tokens", "unknown", "target tokens", "unknown"):
        table.add_column(name, justify="right")
    keys = ("pairs", "source_tokens", "source_unknowns", "target_tokens", "target_unknowns")
    for name, split in outcome.manifest["splits"].items():
        table.add_row(Text(printable(name)), split["role"], *(f"{split[key]:,}" for key in keys))
    return table
