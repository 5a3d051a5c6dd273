"""`nmt import`: a model of another toolkit in, a model folder out."""

from pathlib import Path

import click

from nmt_cli.cli.options import OUT, Choice, Command, common, printer


@click.command("import", cls=Command, epilog="nmt import opus-mt-en-de --out model")
@click.argument("source", metavar="SOURCE")
@click.option("--out", required=True, type=OUT, help="Model folder to write.")
@click.option("--source-lang", help="Source language, if SOURCE does not name it.")
@click.option("--target-lang", help="Target language, if SOURCE does not name it.")
@click.option(
    "--positions",
    type=Choice(["marian", "huggingface"]),
    help="Position encodings.  [default: those of SOURCE's toolkit]",
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
    """Convert another toolkit's model to nmt's format.

    SOURCE is one of:

    \b
    Hugging Face  a folder of a Marian (OPUS-MT), M2M100, NLLB, T5 or
                  MADLAD model, or its name on the Hub
    Marian        an .npz file, a .zip of OPUS-MT, or a .bin of Bergamot
                  and Firefox
    CTranslate2   a folder with its SentencePiece models, as quickmt's, or the
                  name of a quickmt model on the Hub
    Argos         an .argosmodel, or an installed package
    fairseq       a checkpoint in one folder with its dictionaries
    eole          a folder that eole train wrote

    No code in SOURCE is executed. If nmt lacks a feature of the model, an
    error names the feature and nothing is written.

    Position encodings of Marian and transformers differ slightly. --positions
    chooses those of the Marian that trained the model, or of transformers.
    """
    from nmt_cli.interop.foreign import ImportOptions, check_free, write
    from nmt_cli.interop.importing import read

    # Before the model is downloaded.
    check_free(out)
    foreign = read(source, ImportOptions(source_lang, target_lang, positions))  # type: ignore[arg-type]
    write(foreign, out)
    show, recipe = printer(quiet), foreign.tokenizers.recipe
    pair, count = f"{recipe.source_lang}-{recipe.target_lang}", len(recipe.own_languages.targets)
    show(f"{out}: {foreign.kind}, {pair if count == 1 else f'{count} target languages'}")
    if foreign.search:
        search = ", ".join(f"{name} {value}" for name, value in foreign.search.items())
        show(f"nmt translate uses the model's own search settings: {search}")
    for note in foreign.notes:
        show(f"note: {note}")
