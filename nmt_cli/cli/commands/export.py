"""`nmt export`: a model folder in, another toolkit's model out."""

from pathlib import Path

import click

from nmt_cli.cli.options import Command, common

EXAMPLES = 3


@click.command(cls=Command, epilog="nmt export run --format huggingface --check --out exported")
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--format",
    "form",
    required=True,
    type=click.Choice(["huggingface", "ctranslate2", "marian", "argos"]),
    help="Whose model it is to be.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="What to write.")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16", "int8"]),
    default="fp32",
    show_default=True,
    help="Numbers to keep.",
)
@click.option("--check", is_flag=True, help="Translate made-up lines with both, and tell how many differ.")
@common
def export(model: Path, form: str, out: Path, precision: str, check: bool, quiet: bool) -> None:
    """Make another toolkit's model of MODEL, a model, checkpoint or run folder.

    What the other can't do as the model does is refused by name before anything is written.
    """
    from nmt_cli.checkpoints.finding import find_model
    from nmt_cli.checkpoints.model_folder import read_model
    from nmt_cli.interop.exporters.exporting import export as write
    from nmt_cli.interop.foreign import check_free

    # Before the model is read, which can take long.
    check_free(out)
    read = read_model(find_model(model))
    notes = write(read, form, out, precision)  # type: ignore[arg-type]
    if not quiet:
        click.echo(f"{out}: {model} for {form}, {precision}", err=True)
    for note in notes:
        click.echo(f"Warning: {note}", err=True)
    if check:
        _check(model, form, out)


def _check(model: Path, form: str, out: Path) -> None:
    """Print how many lines the other library translates otherwise, and the first of them."""
    from nmt_cli.api import SearchConfig, TranslateConfig, load
    from nmt_cli.interop.exporters.exporting import made_up, search_alike, translate
    from nmt_cli.scoring.metrics import score

    search = SearchConfig(max_length=60, **search_alike(form))
    with load(model, device="cpu", threads=1, config=TranslateConfig(search=search)) as loaded:
        lines = made_up(loaded.tokenizers.source)
        ours = loaded.translate(lines)
    theirs = translate(form, out, lines)
    differing = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
    (bleu,) = score(theirs, [ours], ["bleu"])
    click.echo(f"{len(differing)} of {len(lines)} made-up lines differ; BLEU against nmt's {bleu.value:.2f}")
    for our, their in differing[:EXAMPLES]:
        click.echo(f"  nmt: {our}\n  {form}: {their}")
