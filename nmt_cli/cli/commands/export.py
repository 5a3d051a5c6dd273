"""`nmt export`: a model folder in, a model of another toolkit out."""

from collections.abc import Callable
from pathlib import Path

import click

from nmt_cli.cli.options import (
    EXISTING,
    EXISTING_FILE,
    OUT,
    Choice,
    Command,
    common,
    not_empty,
    printer,
    warn,
)

EXAMPLES = 3
"""The number of differing translations that --check prints."""


@click.command(cls=Command, epilog="nmt export run --format huggingface --check --out exported")
@click.argument("model", type=EXISTING)
@click.option(
    "--format",
    "form",
    required=True,
    type=Choice(["huggingface", "ctranslate2", "marian", "argos", "bergamot"]),
    help="Toolkit to convert to.",
)
@click.option("--out", required=True, type=OUT, help="File or folder to write.")
@click.option(
    "--precision",
    type=Choice(["fp32", "fp16", "int8"]),
    default="fp32",
    show_default=True,
    help="Numeric precision.",
)
@click.option("--check", is_flag=True, help="Compare translations with both toolkits.")
@click.option("--source", type=EXISTING_FILE, help="Lines for --check, instead of generated ones.")
@click.option("--licence", callback=not_empty, help="Licence of the model, for README.md.")
@click.option("--push", metavar="OWNER/NAME", help="Upload to this repository on the Hub.")
@click.option("--private", is_flag=True, help="Make the repository private if it is new.")
@common
def export(
    model: Path,
    form: str,
    out: Path,
    precision: str,
    check: bool,
    source: Path | None,
    licence: str | None,
    push: str | None,
    private: bool,
    quiet: bool,
) -> None:
    """Convert a model to another toolkit's format.

    MODEL is a model, checkpoint or run folder. If the other toolkit lacks a
    feature of the model, an error names the feature and nothing is written.

    --check translates generated lines with nmt and with the other toolkit, both
    in the precision of the export, and prints how many translations differ.
    --source FILE takes the lines from a file.

    README.md is a model card of the Hugging Face Hub, with the scores that the
    model records. --push uploads the finished export with the token of
    hf auth login or HF_TOKEN.
    """
    if private and not push:
        raise click.UsageError("--private has no effect without --push. Add --push OWNER/NAME.")
    if source and not check:
        raise click.UsageError("--source has no effect without --check. Add --check.")
    from nmt_cli.checkpoints.card import facts_of
    from nmt_cli.checkpoints.finding import find_model
    from nmt_cli.checkpoints.model_folder import read_model
    from nmt_cli.interop import exporting, hub
    from nmt_cli.interop.foreign import check_free
    from nmt_cli.scoring.texts import read_hypotheses

    # Before the model is read, which can take minutes.
    check_free(out)
    lines = list(read_hypotheses(source).lines) if source else []
    if push:
        hub.check_pushable(push)
    read = read_model(folder := find_model(model))
    # `export` reports losses, which come first: no package would help.
    translate = exporting.translator(read, form) if check and not exporting.losses(read, form) else None
    notes = exporting.export(read, form, out, precision, facts_of(folder, read), licence or "")  # type: ignore[arg-type]
    show = printer(quiet)
    show(f"{out}: {model} for {form}, {precision}")
    for note in notes:
        warn(note)
    if translate:
        _check(model, form, precision, lines, lambda lines: translate(out, lines))
    if push:
        if not licence:
            warn(f"the card of {push} states no licence: add --licence, or edit README.md")
        show(f"pushed to {hub.push(out, push, private=private)}")


def _check(
    model: Path,
    form: str,
    precision: str,
    lines: list[str],
    translate: Callable[[list[str]], list[str]],
) -> None:
    """Translate lines with both toolkits, and print how many translations differ, BLEU, and examples.

    - `model`: our model.
    - `form`: the name of the other toolkit.
    - `precision`: that of the export. Ours is int8 for int8, and else fp32.
    - `lines`: what to translate. [] generates lines.
    - `translate`: a function that translates with the other toolkit.
    """
    from nmt_cli.api import SearchConfig, TranslateConfig, load
    from nmt_cli.interop.conventions import LONGEST_CHECKED, made_up
    from nmt_cli.interop.exporting import TOOLKITS
    from nmt_cli.runtime.devices import Precision
    from nmt_cli.scoring.measures import score

    # With longer limits, 50 of 50 lines of a weak model differed. With these, a few do.
    limits = dict.fromkeys(("max_length", "cap_extra"), LONGEST_CHECKED)
    # Only Bergamot gets the shortlist of the model.
    search = SearchConfig(**{**limits, "shortlist": form == "bergamot", **TOOLKITS[form].SEARCH})
    own: Precision = "int8" if precision == "int8" else "fp32"
    with load(model, device="cpu", threads=1, precision=own, config=TranslateConfig(search=search)) as loaded:
        kind, lines = ("", lines) if lines else ("generated ", made_up(loaded.tokenizers.source))
        ours = loaded.translate(lines)
    theirs = translate(lines)
    differing = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
    (bleu,) = score(theirs, [ours], ["bleu"])
    counts = f"{len(differing):,} of {len(lines):,} {kind}lines differ"
    click.echo(f"{counts}; BLEU against nmt in {own}: {bleu.value:.2f}")
    for our, their in differing[:EXAMPLES]:
        click.echo(f"  nmt: {our}\n  {form}: {their}")
