"""`nmt score`: hypotheses and references in, scores out."""

import gc
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from nmt_cli.cli.options import (
    DEVICE,
    DEVICES,
    EXISTING,
    PATH,
    Choice,
    CommandWithSettings,
    check_direction,
    chosen,
    common,
    not_empty,
    typed_settings,
    with_settings,
)
from nmt_cli.scoring.config import Metric, ScoreConfig, Test

if TYPE_CHECKING:
    from nmt_cli.scoring.scorers import Scorer

COMET = "comet"

HELP = """Score translations with BLEU, chrF and COMET.

HYP is the output of a system, line by line like the references. Without
HYP it is read from stdin. Files may be plain, compressed (gzip, bzip2, xz,
zstd) or WMT .sgm.

The default metrics are bleu and chrf, with paper-bleu if the language is
known:

\b
bleu, chrf, ter  as sacrebleu computes them
paper-bleu       as "Attention Is All You Need": tokenised, compounds split

Compare paper-bleu only with published scores of the same kind.

--metric comet needs --source, and --metric-model with the folder of a COMET,
COMETKiwi or xCOMET model. --scorer runs any other scorer. COMMAND reads JSON
lines with src, mt and ref, and prints a number for each.

--documents scores the documents of a WMT .sgm or .xml file, or of the ids in
FILE, instead of lines.

--significance randomization is approximate randomization, with the right p.
--significance bootstrap is sacrebleu's paired bootstrap, whose p is too
small. With --model and --source, the output is a log-probability per line.
"""


@click.command(
    cls=CommandWithSettings,
    help=HELP,
    settings=ScoreConfig,
    epilog="nmt score --reference test.de base.de big.de --significance randomization",
)
@click.argument("hypotheses", nargs=-1, type=PATH, metavar="[HYP ... | -]")
@click.option(
    "--reference", "references", multiple=True, type=PATH, help="Reference translation. Repeat for several."
)
@click.option("--source-lang", metavar="LANG", callback=not_empty, help="Source language of --model.")
@click.option("--target-lang", metavar="LANG", help="Target language.  [default: the ending of REFERENCE]")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    type=Choice([*get_args(Metric), COMET]),
    help="Metric. Repeatable.",
)
@click.option("--metric-model", type=EXISTING, metavar="FOLDER", help="Model of --metric comet.")
@click.option("--scorer", "command", metavar="COMMAND", callback=not_empty, help="Score with a command.")
@click.option("--device", type=DEVICE, metavar=DEVICES, help="Device of --metric comet.  [default: auto]")
@click.option("--sentences", is_flag=True, help="Also score each line, as tab-separated values.")
@click.option("--by-length", is_flag=True, help="Also score short and long lines apart.")
@click.option("--documents", type=PATH, metavar="FILE", help="Score documents. FILE has an id per line.")
@click.option("--significance", type=Choice(get_args(Test)), help="Test the difference to the first system.")
@click.option("--model", type=PATH, help="Score HYP with this model, not references.")
@click.option("--source", type=PATH, help="Source of HYP.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with full precision.")
@with_settings
@common
def score(
    hypotheses: tuple[Path, ...],
    references: tuple[Path, ...],
    source_lang: str | None,
    target_lang: str | None,
    metrics: tuple[Metric, ...],
    metric_model: Path | None,
    command: str | None,
    device: str | None,
    sentences: bool,
    by_length: bool,
    documents: Path | None,
    significance: Test | None,
    model: Path | None,
    source: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print scores against references, or by a model. The help is `HELP`."""
    config, settings = chosen(ScoreConfig), typed_settings().names
    inputs = hypotheses or (Path("-"),)  # stdin
    # Otherwise the command would seem to hang.
    if Path("-") in inputs and sys.stdin.isatty() and not quiet:
        click.echo("Reading translations from the terminal; Ctrl-D ends the input.", err=True)
    if model or (source and not command and COMET not in metrics):
        tests = sentences, by_length, documents, significance
        unused = [references, metrics, metric_model, command, device, *tests, settings, inputs[1:]]
        _check_by_model(model, source, unused=any(unused))
        assert model and source
        _by_model(model, (source_lang, target_lang), (source, inputs[0]), as_json, quiet)
        return
    if source_lang:
        raise click.UsageError("--source-lang chooses a direction of --model. Remove it.")
    if not references and not source:
        instead = "--metric comet, --scorer and --model can use --source FILE instead"
        raise click.UsageError(f"Give --reference FILE. {instead}.")
    if by_length and documents:
        raise click.UsageError("--by-length is about lines, and --documents scores documents. Remove one.")
    if COMET in metrics and not metric_model:
        raise click.UsageError("--metric comet needs --metric-model FOLDER.")
    if COMET not in metrics and (metric_model or device):
        raise click.UsageError(f"{'--metric-model' if metric_model else '--device'} needs --metric comet.")

    from nmt_cli.cli.reports.score_tables import show, show_json
    from nmt_cli.scoring.evaluate import Evaluation, evaluate

    with ExitStack() as stack:
        scorers = [*_scorers(metric_model, device, command, quiet, stack)]
        # COMET is a scorer, which loads a model. The other metrics are sacrebleu's.
        others = [metric for metric in metrics if metric != COMET]
        evaluation = Evaluation(
            references=references,
            hypotheses=inputs,
            target_lang=target_lang or "",
            metrics=others,
            sentences=sentences,
            significance=significance,
            config=config,
            given=settings,
            scorers=scorers,
            source=source,
            by_length=by_length,
        )
        # Collecting garbage takes a tenth of the time, and millions of n-grams form no cycles.
        gc.disable()
        stack.callback(gc.enable)
        outcome = evaluate(evaluation, documents)
    if as_json:
        show_json(outcome, quiet)
    else:
        show(outcome, quiet)


def _scorers(
    folder: Path | None, device: str | None, command: str | None, quiet: bool, stack: ExitStack
) -> Iterator["Scorer"]:
    """Yield the scorers that the options request: a COMET model, and a command.

    - `folder`, `device`: those of the COMET model.
    - `command`: run by the shell.
    - `stack`: ends the display of progress.
    """
    from nmt_cli.cli.reports.progress_bars import shown_progress

    report = stack.enter_context(shown_progress("lines", quiet or not (folder or command)))
    if folder:
        from nmt_cli.scoring.neural.comet import Comet  # loads torch

        yield Comet(folder, device or "auto", report)
    if command:
        from nmt_cli.scoring.command import CommandScorer

        yield CommandScorer(command, report=report)


def _check_by_model(model: Path | None, source: Path | None, *, unused: bool) -> None:
    """Raise `UsageError` if `model` or `source` is None, or if options are `unused` that have no effect with
    --model."""
    if not model or not source:
        raise click.UsageError("--model and --source work only together. Add the other.")
    if unused:
        others = "--source, --source-lang, --target-lang and --json"
        raise click.UsageError(f"--model works only with one HYP, {others}. Remove the others.")


def _by_model(
    model: Path,
    languages: tuple[str | None, str | None],
    files: tuple[Path, Path],
    as_json: bool,
    quiet: bool,
) -> None:
    """Print the log-probability of each hypothesis by a model, given its source.

    - `languages`: the source and the target language of a model of several. None is the usual one.
    - `files`: the sources and the hypotheses.
    """
    check_direction(model, *languages, quiet)

    from nmt_cli.api import load
    from nmt_cli.cli.reports.score_tables import show_pair_scores
    from nmt_cli.translation.pairs import read_pairs, with_perplexity

    pairs, (source, target) = read_pairs(*files), languages
    with load(model, precision="fp32", threads=1) as loaded:
        directed = loaded.direction(target, source) if source or target else loaded
        scores, longest = directed.token_scores(pairs), directed.max_source_tokens
        show_pair_scores(with_perplexity(scores, directed.tokenizers.source, longest, pairs), as_json, quiet)
