"""`nmt score`: hypotheses and references in, scores out."""

import gc
import sys
from pathlib import Path
from typing import get_args

import click

from nmt_cli import config as settings
from nmt_cli.cli.options import CommandWithSettings, common
from nmt_cli.scoring.config import Metric, ScoreConfig, Test

TEXT = click.Path(path_type=Path)


@click.command(cls=CommandWithSettings, settings=ScoreConfig)
@click.argument("hypotheses", nargs=-1, type=TEXT, metavar="[HYP ... | -]")
@click.option(
    "--reference",
    "references",
    required=True,
    multiple=True,
    type=TEXT,
    help="A reference translation; repeat for more.",
)
@click.option(
    "--target-lang", metavar="LANG", help="Language of the texts.  [default: what REFERENCE ends in]"
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    type=click.Choice(get_args(Metric)),
    help="What to compute; repeatable.  [default: bleu, chrf, and paper-bleu where the language is known]",
)
@click.option("--sentences", is_flag=True, help="Score each line too, as tab-separated values.")
@click.option(
    "--significance",
    type=click.Choice(get_args(Test)),
    help="Test whether systems differ from the first one: paired bootstrap, approximate randomization.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything in full precision as JSON.")
@click.option(
    "--config", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Settings as TOML."
)
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="One setting; repeatable.")
@common
def score(
    hypotheses: tuple[Path, ...],
    references: tuple[Path, ...],
    target_lang: str | None,
    metrics: tuple[Metric, ...],
    sentences: bool,
    significance: Test | None,
    as_json: bool,
    file: Path | None,
    assignments: tuple[str, ...],
    quiet: bool,
) -> None:
    """Score translations against references, line for line.

    HYP is the output of one system; without any, it is read from stdin. Texts may be plain, packed with gzip,
    bzip2, xz or zstd, or WMT .sgm. paper-bleu is BLEU as "Attention Is All You Need" has it, on tokenised
    text with compounds split: compare it with numbers of that kind only, and sacrebleu's with sacrebleu's.
    """
    config = settings.read(ScoreConfig, file, assignments)
    given = settings.given_names(file, assignments, {})

    from nmt_cli.cli.score_report import show, show_json
    from nmt_cli.scoring.evaluate import Request, evaluate

    inputs = hypotheses or (Path("-"),)
    if Path("-") in inputs and sys.stdin.isatty() and not quiet:
        click.echo("Reading hypotheses from the terminal; Ctrl-D ends them.", err=True)
    request = Request(references, inputs, target_lang or "", metrics, sentences, significance, config, given)
    gc.disable()  # millions of n-grams, none of them in a ring: looking for rings takes a tenth of the time
    try:
        outcome = evaluate(request)
    finally:
        gc.enable()
    if as_json:
        show_json(outcome, quiet)
    else:
        show(outcome, quiet)
