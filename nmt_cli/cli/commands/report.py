"""`nmt report`: a run folder in, its curves as a figure out."""

from pathlib import Path

import click

from nmt_cli.cli.options import EXISTING_FOLDER, FILE, Command, common, printer


@click.command(cls=Command, epilog="nmt report run --out curves.svg")
@click.argument("runs", nargs=-1, required=True, metavar="RUN", type=EXISTING_FOLDER)
@click.option("--out", required=True, type=FILE, help="SVG file to write.")
@common
def report(runs: tuple[Path, ...], out: Path, quiet: bool) -> None:
    """Draw the curves of a training run for a paper.

    They are training loss, validation loss and BLEU. The page report.html in
    the run folder shows more. TensorBoard and Weights & Biases compare runs
    (training.tensorboard, training.wandb).
    """
    from nmt_cli.training.tracking.curves_svg import write_curves

    if len(runs) > 1:
        raise click.UsageError(
            "nmt report draws one run. To compare runs, use TensorBoard or Weights & Biases."
        )
    write_curves(runs[0], out)
    printer(quiet)(f"{out}: curves of {runs[0]}")
