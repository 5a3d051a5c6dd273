"""`nmt import`: a model of another toolkit in, a model folder out."""

import re
from pathlib import Path

import click

from nmt_cli.cli.options import EXISTING_FILE, OUT, Choice, Command, Number, common, printer
from nmt_cli.errors import UserError
from nmt_cli.setting_values import Bounds
from nmt_cli.text.model_languages import listed


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
@click.option(
    "--keep", multiple=True, metavar="LANG,LANG", help="Languages to keep. Trims the vocabulary to --text."
)
@click.option("--add", multiple=True, metavar="NEW=OLD", help="New language, which starts as an old one.")
@click.option("--text", multiple=True, type=EXISTING_FILE, help="Text, such as mine.en. Can be repeated.")
@click.option(
    "--pieces",
    type=Number(Bounds(least=0, most=1_000_000)),
    help="New pieces to learn from --text.  [default: 0, with --add 2000]",
)
@common
def import_model(
    source: str,
    out: Path,
    source_lang: str | None,
    target_lang: str | None,
    positions: str | None,
    keep: tuple[str, ...],
    add: tuple[str, ...],
    text: tuple[Path, ...],
    pieces: int | None,
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

    --keep makes the vocabulary smaller. It keeps the entries that --text needs,
    all characters of its scripts, and the languages that you name. --add and
    --pieces make it larger. With these options, SOURCE may be a model of nmt.
    """
    from nmt_cli.cli.reports.tables import print_table
    from nmt_cli.interop.foreign import ImportOptions, check_free, write
    from nmt_cli.interop.importing import read
    from nmt_cli.interop.vocabulary_options import Wishes, fit

    # Before the model is downloaded.
    check_free(out)
    wishes = Wishes(_listed(keep), _starts(add), text, pieces)
    options = ImportOptions(source_lang, target_lang, positions)  # type: ignore[arg-type]
    foreign = read(source, wishes.options(options), own=bool(text))
    if text:
        foreign, compared = fit(foreign, wishes, options)
    write(foreign, out)
    show, recipe = printer(quiet), foreign.tokenizers.recipe
    if text and not quiet:
        print_table(None, ["vocabulary"], ["before", "after"], compared, stderr=True)
    names = recipe.own_languages.sources, recipe.own_languages.targets
    arrow = "-" if len(names[0]) == len(names[1]) == 1 else " -> "
    show(f"{out}: {foreign.kind}, {listed(names[0])}{arrow}{listed(names[1])}")
    if foreign.search:
        search = ", ".join(f"{name} {value}" for name, value in foreign.search.items())
        show(f"nmt translate uses the model's own search settings: {search}")
    for note in foreign.notes:
        show(f"note: {note}")


def _listed(keep: tuple[str, ...]) -> tuple[str, ...]:
    """Return the languages of all --keep, each once. Raise `UserError` for an empty name."""
    names = tuple(dict.fromkeys(name.strip() for listed in keep for name in listed.split(",")))
    if "" in names:
        raise UserError(
            f"--keep {','.join(keep)} has an empty name. Give languages such as eng_Latn,deu_Latn."
        )
    return names


def _starts(add: tuple[str, ...]) -> dict[str, str]:
    """Return the language that each new one of --add starts as. Raise `UserError` for another form."""
    starts: dict[str, str] = {}
    for text in add:
        new, _, old = text.partition("=")
        if not old or new in starts or not re.fullmatch(r"[\w-]+", new):
            raise UserError(
                f"--add {text} is not NEW=OLD. Give one such as tyv_Cyrl=kaz_Cyrl for each language."
            )
        starts[new] = old
    return starts
