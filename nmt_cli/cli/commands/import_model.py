"""`nmt import`: another toolkit's model in, a model folder out."""

from pathlib import Path

import click

from nmt_cli.cli.options import Command, common
from nmt_cli.errors import printable


@click.command("import", cls=Command, epilog="nmt import opus-mt-en-de --out model")
@click.argument("source", metavar="SOURCE")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Model folder to write.")
@click.option("--source-lang", help="Its source language, where SOURCE does not say so.")
@click.option("--target-lang", help="Its target language, where SOURCE does not say so.")
@click.option(
    "--positions",
    type=click.Choice(["marian", "huggingface"]),
    help="Whose positions it gets: those of the Marian that trained it, or those that transformers computes "
    "with.  [default: as the toolkit does whose files they are]",
)
@common
def import_model(
    source: str,
    out: Path,
    source_lang: str | None,
    target_lang: str | None,
    positions: str | None,
    quiet: bool,
) -> None:
    """Make a model folder of another toolkit's model.

    SOURCE is a folder of Hugging Face's Marian (OPUS-MT), M2M100 or NLLB or its name on the Hub, an .npz or
    .zip of Marian's or OPUS-MT's, or a checkpoint of fairseq's beside its dictionaries. Nothing in it is
    ever run, and what nmt's Transformer can't do is named before anything is written.
    """
    from nmt_cli.interop.foreign import Wanted, check_free, write
    from nmt_cli.interop.importers.importing import read

    # Before anything is downloaded.
    check_free(out)
    foreign = read(source, Wanted(source_lang, target_lang, positions))  # type: ignore[arg-type]
    write(foreign, out)
    if quiet:
        return
    recipe = foreign.tokenizers.recipe
    lines = [f"{out}: {foreign.kind}, {recipe.source_lang}-{recipe.target_lang}"]
    if foreign.search:
        search = ", ".join(f"{name} {value}" for name, value in foreign.search.items())
        lines.append(f"nmt translate decodes as its owner does: {search}")
    for line in [*lines, *(f"note: {note}" for note in foreign.notes)]:
        click.echo(printable(line), err=True)
