"""`nmt report`: a run folder in, its curves as a figure out."""

from pathlib import Path

import click

from nmt_cli.cli.options import EXISTING, OUT_FILE, Command, common, printer


@click.command(cls=Command, epilog="nmt report run --out curves.svg")
@click.argument("run", type=EXISTING)
@click.option("--out", required=True, type=OUT_FILE, help="SVG file to write.")
@common
def report(run: Path, out: Path, quiet: bool) -> None:
    """Draw the curves of a training run for a paper.

    They are training loss, validation loss and BLEU. The page report.html in
    the run folder shows more. TensorBoard and Weights & Biases compare runs
    (training.tensorboard, training.wandb).
    """
    from nmt_cli.training.tracking.curves_svg import write_curves

    write_curves(run, out)
    printer(quiet)(f"{out}: curves of {run}")
