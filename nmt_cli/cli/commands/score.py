"""`nmt score`: hypotheses and references in, scores out."""

import gc
import sys
from pathlib import Path
from typing import get_args

import click

from nmt_cli import config as settings
from nmt_cli.cli.options import FOLDER, CommandWithSettings, chosen, common, with_settings
from nmt_cli.scoring.config import AnyMetric, ScoreConfig, Test

TEXT = click.Path(path_type=Path)


@click.command(
    cls=CommandWithSettings,
    settings=ScoreConfig,
    epilog="nmt score --reference test.de base.de big.de --significance bootstrap",
)
@click.argument("hypotheses", nargs=-1, type=TEXT, metavar="[HYP ... | -]")
@click.option(
    "--reference",
    "references",
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
    type=click.Choice(get_args(AnyMetric)),
    help="What to compute; repeatable.  [default: bleu, chrf, and paper-bleu where the language is known; "
    "brackets where REFERENCE is .trees]",
)
@click.option("--sentences", is_flag=True, help="Score each line too, as tab-separated values.")
@click.option(
    "--significance",
    type=click.Choice(get_args(Test)),
    help="Test whether systems differ from the first one: paired bootstrap, approximate randomization.",
)
@click.option("--model", type=FOLDER, help="A model that scores HYP, in place of references.")
@click.option("--source", type=TEXT, help="What HYP is the translation of, for --model.")
@click.option("--json", "as_json", is_flag=True, help="Print everything in full precision as JSON.")
@with_settings
@common
def score(
    hypotheses: tuple[Path, ...],
    references: tuple[Path, ...],
    target_lang: str | None,
    metrics: tuple[AnyMetric, ...],
    sentences: bool,
    significance: Test | None,
    model: Path | None,
    source: Path | None,
    as_json: bool,
    file: Path | None,
    assignments: tuple[str, ...],
    quiet: bool,
) -> None:
    """Score translations against references, line for line.

    HYP is the output of one system; without any, it is read from stdin. Texts may be plain, packed with gzip,
    bzip2, xz or zstd, or WMT .sgm. paper-bleu is BLEU as "Attention Is All You Need" has it, on tokenised
    text with compounds split: compare it with numbers of that kind only, and sacrebleu's with sacrebleu's.
    brackets is the F1 of parses, bracketed or linearised, one a line, as EVALB counts it.
    """
    config = chosen(ScoreConfig, file, assignments)
    given = settings.given_names(file, assignments, {})
    inputs = hypotheses or (Path("-"),)  # stdin
    if Path("-") in inputs and sys.stdin.isatty() and not quiet:
        click.echo("Reading hypotheses from the terminal; Ctrl-D ends them.", err=True)
    if model or source:
        idle = [references, target_lang, metrics, sentences, significance, given, inputs[1:]]
        _by_model(model, source, inputs[0], as_json, quiet, idle=any(idle))
        return
    if not references:
        raise click.UsageError("Missing option '--reference'; or give --model and --source.")

    from nmt_cli.cli.reports.score import show, show_json
    from nmt_cli.scoring.evaluate import Evaluation, evaluate

    evaluation = Evaluation(
        references, inputs, target_lang or "", metrics, sentences, significance, config, given
    )
    gc.disable()  # millions of n-grams, none of them in a ring: looking for rings takes a tenth of the time
    try:
        outcome = evaluate(evaluation)
    finally:
        gc.enable()
    if as_json:
        show_json(outcome, quiet)
    else:
        show(outcome, quiet)


def _by_model(
    model: Path | None, source: Path | None, hypotheses: Path, as_json: bool, quiet: bool, *, idle: bool
) -> None:
    """Print what a model thinks of `hypotheses`; `idle` says that something else was asked for."""
    if not model or not source:
        raise click.UsageError("--model and --source need each other.")
    if idle:
        raise click.UsageError("--model takes one HYP, --source and --json, and nothing else.")

    from nmt_cli.api import load
    from nmt_cli.cli.reports.score import show_forced
    from nmt_cli.translation.given_pairs import force, read_texts

    texts = read_texts(source, hypotheses)
    with load(model, precision="fp32", threads=1) as loaded:
        forced = force(loaded.token_scores(texts.pairs), loaded.tokenizers, loaded.max_source_tokens, texts)
        show_forced(forced, as_json, quiet)
