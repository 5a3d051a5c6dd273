"""`nmt score`: hypotheses and references in, scores out."""

import gc
import sys
from pathlib import Path
from typing import get_args

import click

from nmt_cli.cli.options import (
    PATH,
    CommandWithSettings,
    chosen,
    common,
    typed_settings,
    with_settings,
)
from nmt_cli.scoring.config import Metric, ScoreConfig, Test

HELP = """Score translations with BLEU, chrF and others.

HYP is the output of a system, line by line like the references. Without
HYP it is read from stdin. Files may be plain, compressed (gzip, bzip2, xz,
zstd) or WMT .sgm.

The default metrics are bleu and chrf, with paper-bleu if the language is
known:

\b
bleu, chrf, ter  as sacrebleu computes them
paper-bleu       as "Attention Is All You Need": tokenised, compounds split

Compare paper-bleu only with published scores of the same kind.

--significance bootstrap is paired bootstrap resampling, randomization is
approximate randomization. With --model and --source, the output is a
log-probability per line.
"""


@click.command(
    cls=CommandWithSettings,
    help=HELP,
    settings=ScoreConfig,
    epilog="nmt score --reference test.de base.de big.de --significance bootstrap",
)
@click.argument("hypotheses", nargs=-1, type=PATH, metavar="[HYP ... | -]")
@click.option(
    "--reference", "references", multiple=True, type=PATH, help="Reference translation. Repeat for several."
)
@click.option("--target-lang", metavar="LANG", help="Language.  [default: the ending of REFERENCE]")
@click.option(
    "--metric", "metrics", multiple=True, type=click.Choice(get_args(Metric)), help="Metric. Repeatable."
)
@click.option("--sentences", is_flag=True, help="Also score each line, as tab-separated values.")
@click.option(
    "--significance", type=click.Choice(get_args(Test)), help="Test the difference to the first system."
)
@click.option("--model", type=PATH, help="Score HYP with this model, not references.")
@click.option("--source", type=PATH, help="Source of HYP, for --model.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with full precision.")
@with_settings
@common
def score(
    hypotheses: tuple[Path, ...],
    references: tuple[Path, ...],
    target_lang: str | None,
    metrics: tuple[Metric, ...],
    sentences: bool,
    significance: Test | None,
    model: Path | None,
    source: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print scores of `hypotheses` against `references`, or by `model` given `source`. Its help is `HELP`.
    Raise `UsageError` without references and model, or for options without effect."""
    config, settings = chosen(ScoreConfig), typed_settings().names
    inputs = hypotheses or (Path("-"),)  # stdin
    if Path("-") in inputs and sys.stdin.isatty() and not quiet:
        click.echo("Reading translations from the terminal; Ctrl-D ends the input.", err=True)
    if model or source:
        unused = [references, target_lang, metrics, sentences, significance, settings, inputs[1:]]
        _by_model(model, source, inputs[0], as_json, quiet, unused=any(unused))
        return
    if not references:
        raise click.UsageError("Missing option '--reference' (or --model and --source).")

    from nmt_cli.cli.reports.score import show, show_json
    from nmt_cli.scoring.evaluate import Evaluation, evaluate

    evaluation = Evaluation(
        references, inputs, target_lang or "", metrics, sentences, significance, config, settings
    )
    gc.disable()  # collecting garbage takes a tenth of the time, and millions of n-grams form no cycles
    try:
        outcome = evaluate(evaluation)
    finally:
        gc.enable()
    if as_json:
        show_json(outcome, quiet)
    else:
        show(outcome, quiet)


def _by_model(
    model: Path | None, source: Path | None, hypotheses: Path, as_json: bool, quiet: bool, *, unused: bool
) -> None:
    """Print the log-probability of each line of `hypotheses` given `source`, as `show_pair_scores` does.
    Raise `UsageError` if `model` or `source` is None, or for other options without effect (`unused`)."""
    if not model or not source:
        raise click.UsageError("--model and --source work only together. Add the other.")
    if unused:
        raise click.UsageError("--model works only with one HYP, --source and --json. Remove the others.")

    from nmt_cli.api import load
    from nmt_cli.cli.reports.score import show_pair_scores
    from nmt_cli.translation.pairs import read_pairs, with_perplexity

    pairs = read_pairs(source, hypotheses)
    with load(model, precision="fp32", threads=1) as loaded:
        scores, longest = loaded.token_scores(pairs), loaded.max_source_tokens
        show_pair_scores(with_perplexity(scores, loaded.tokenizers.source, longest, pairs), as_json, quiet)
