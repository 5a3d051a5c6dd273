"""The output of `nmt preprocess`: warnings and tables on stderr."""

from collections.abc import Iterator
from pathlib import Path

from nmt_cli.cli.options import printer, warn
from nmt_cli.cli.reports.tables import print_table
from nmt_cli.data.cleaning.filter_report import FilterReport
from nmt_cli.data.cleaning.filters import in_order
from nmt_cli.data.dataset import FILTER_PAGE, FILTER_REPORT, TRAIN
from nmt_cli.data.preprocessing.pipeline import Outcome


def show(out: Path, outcome: Outcome, quiet: bool) -> None:
    """Print the outcome of preprocessing to stderr.

    Warnings are always printed. Unless `quiet`, tables of pairs and splits, sizes of vocabularies and names
    of files follow. If the dataset is up to date, only that is printed.
    """
    echo = printer(quiet)
    if outcome.remade:
        warn(f"{len(outcome.remade):,} damaged parts of an earlier run were written again.")
    if outcome.report is None:
        echo(f"{out} is up to date: inputs and settings have not changed.")
        return
    for warning in _warnings(outcome, outcome.report):
        warn(warning)
    if quiet:
        return
    _print_tables(outcome, outcome.report)
    tokenizer = outcome.manifest["tokenizer"]
    source, target = f"{tokenizer['source_vocabulary']:,}", f"{tokenizer['target_vocabulary']:,}"
    joint = f"vocabulary: {source} entries, joint"
    echo(joint if tokenizer["joint"] else f"vocabularies: {source} and {target} entries")
    echo(f"filter report with samples: {out / FILTER_PAGE} (for programs: {FILTER_REPORT})")
    echo(f"{out} is complete")


def _warnings(outcome: Outcome, report: FilterReport) -> Iterator[str]:
    """Yield a warning about unknown tokens, if there are any, and one for each reason for which a corpus has
    noted pairs."""
    train = outcome.manifest["splits"][TRAIN]
    if train["source_unknowns"] or train["target_unknowns"]:
        share = (train["source_unknowns"] + train["target_unknowns"]) / (
            train["source_tokens"] + train["target_tokens"]
        )
        # Most reused tokenizers refuse the setting.
        learn = "Learn new subwords with " if outcome.manifest["reused_tokenizer"] else "Set "
        yield f"{100 * share:.2g} % of the training tokens are unknown. {learn}tokenizer.byte_fallback=true."
    for corpus in report.corpora:
        for reason, count in corpus.noted.counts.items():
            # Only an example. Samples are random, so an earlier pair may have the problem too.
            line = min(sample.number for sample in corpus.noted.samples[reason])
            pairs = f"{count:,} of {corpus.read:,} pairs"
            yield f"{corpus.role} set {corpus.name!r}: {reason} in {pairs} (kept; for example line {line:,})"


def _print_tables(outcome: Outcome, report: FilterReport) -> None:
    """Print a table of the training corpora with kept and dropped pairs, and a table of all splits with pairs
    and tokens."""
    corpora = report.of_role("train")
    reasons = in_order(reason for corpus in corpora for reason in corpus.dropped.counts)
    rows = [
        (one.name, one.read, one.kept, *(one.dropped.counts[reason] for reason in reasons)) for one in corpora
    ]
    print_table("Training pairs", ["corpus"], ["read", "kept", *reasons], rows, stderr=True)
    heads = ["pairs", "source tokens", "unknown", "target tokens", "unknown"]
    keys = ("pairs", "source_tokens", "source_unknowns", "target_tokens", "target_unknowns")
    splits = [
        (name, split["role"], *(split[key] for key in keys))
        for name, split in outcome.manifest["splits"].items()
    ]
    print_table("Dataset", ["split", "role"], heads, splits, stderr=True)
