"""Export our models to the formats of other toolkits. Refuse models with unsupported features."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from nmt_cli.checkpoints.card import NO_FACTS, About, complete_export
from nmt_cli.checkpoints.model_folder import LoadedModel
from nmt_cli.errors import UserError
from nmt_cli.interop import argos, bergamot, ctranslate2, huggingface, marian
from nmt_cli.interop.conventions import package, text_losses
from nmt_cli.interop.foreign import UNTOUCHED
from nmt_cli.runtime.atomic import folder_written_whole
from nmt_cli.runtime.devices import Precision
from nmt_cli.text.tokenizers import Tokenizers


class Toolkit(Protocol):
    """A module for a toolkit that can load an export."""

    NAME: str
    PRECISIONS: Sequence[Precision]
    """Precisions that an export may have."""

    SEARCH: Mapping[str, Any]
    """Settings with which our search gives the toolkit's results."""

    def losses(self, model: LoadedModel) -> list[str]:
        """Return a message for each feature of the model that the toolkit lacks, or []."""

    def write(self, model: LoadedModel, folder: Path, precision: Precision) -> list[str]:
        """Write the files of the export into an existing folder. Return notes for the user."""


TOOLKITS: Mapping[str, Toolkit] = {
    "huggingface": huggingface,
    "ctranslate2": ctranslate2,
    "marian": marian,
    "argos": argos,
    "bergamot": bergamot,
}

Translate = Callable[[Path, list[str]], list[str]]
CHECKED: Mapping[str, tuple[str, Translate]] = {
    "huggingface": ("transformers", huggingface.translate),
    "ctranslate2": ("ctranslate2", ctranslate2.translate),
    "marian": ("pymarian", marian.translate),
    "argos": ("ctranslate2", argos.translate),
    "bergamot": ("", bergamot.translate),
}
"""The Python package that translates with an export, and the function that calls it with a beam of 4.
Bergamot has a beam of 1, and no package for our Python."""

BARE_SOURCES = ("ctranslate2", "argos")
"""Formats in which source sentences may have no end token."""

WITH_SYMBOLS = ("huggingface", "ctranslate2")
"""Formats whose users or tokenisers put symbols such as >>de<< between the pieces of a text."""


def translator(model: LoadedModel, form: str) -> Translate:
    """Return the function that translates with an export. Raise `UserError` if it could not run."""
    name, translate = CHECKED[form]
    # Before anything is exported, so that nothing is written in vain.
    if form == "bergamot":
        bergamot.engine()
    else:
        package(name, "--check")
    if form == "marian" and not marian.numbered_alike(model.identity.tokenizers):
        raise UserError("--check cannot translate with this vocabulary. Compare with marian-decoder instead.")
    return translate


def losses(model: LoadedModel, form: str) -> list[str]:
    """Return a message for each feature of the model or its tokenisers that an export loses, or []. `form` is
    a key of `TOOLKITS`."""
    tokenizers = model.identity.tokenizers
    if form == "huggingface" and huggingface.of_many_languages(model):
        return huggingface.losses(model)  # its symbols are language codes of the tokeniser
    bare = tokenizers.recipe.bare_source and form not in BARE_SOURCES
    messages = ["source sentences have no end token"] if bare else []
    # SentencePiece would cut the symbol into pieces, and the target language would be lost.
    if tokenizers.recipe.symbols and form not in WITH_SYMBOLS and not _takes_pieces(form, tokenizers):
        messages.append(f"SentencePiece does not find the symbol {tokenizers.recipe.symbols[0]} in a text")
    return TOOLKITS[form].losses(model) + text_losses(tokenizers) + messages


def _takes_pieces(form: str, tokenizers: Tokenizers) -> bool:
    """Return whether users cut texts into pieces and can add symbols, as for Marian's YAML vocabularies."""
    is_sentencepiece = tokenizers.recipe.kind == "sentencepiece"
    return form == "marian" and is_sentencepiece and not marian.numbered_alike(tokenizers)


def export(
    model: LoadedModel,
    form: str,
    out: Path,
    precision: Precision = "fp32",
    about: About = NO_FACTS,
    licence: str = "",
) -> Sequence[str]:
    """Write a model in the format of another toolkit. Return notes for the user.

    form: a key of `TOOLKITS`.
    out: the folder of the export, which is written completely or not at all.
    about, licence: facts for README.md. The licence is that of the model.

    Raise `UserError` if the toolkit lacks `precision` or a feature of the model.
    """
    toolkit = TOOLKITS[form]
    if lost := losses(model, form):
        others = " or ".join(other for other in TOOLKITS if not losses(model, other))
        remedy = f"Use --format {others}" if others else "Train with --preset marian-base"
        # Both rules of sinusoids fit the weights of an OPUS-MT model. The user chose at the import.
        if lost == ["model.positions is sinusoidal"] and model.identity.tokenizers.recipe.text == UNTOUCHED:
            remedy += ", or import the original model again with --positions marian"
        raise UserError(f"{toolkit.NAME} does not support this model: {', '.join(lost)}. {remedy}.")
    if precision not in toolkit.PRECISIONS:
        supported = " or ".join(toolkit.PRECISIONS)
        raise UserError(f"{toolkit.NAME} exports support only --precision {supported} (got {precision}).")
    with folder_written_whole(out) as folder:
        notes = toolkit.write(model, folder, precision)
        complete_export(folder, form, model.identity, about, licence)
    return notes
