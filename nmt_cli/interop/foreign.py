"""Describe another toolkit's model in our terms, and write it as a model folder.

Foreign means: of another toolkit.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from nmt_cli.checkpoints.model_folder import Identity, write_model, write_shortlist
from nmt_cli.errors import UserError
from nmt_cli.language import language_in, nearest_language
from nmt_cli.model.config import ModelConfig
from nmt_cli.runtime.atomic import check_writable, folder_written_whole, refuse_other_files
from nmt_cli.setting_values import toml_literal
from nmt_cli.text.config import TextConfig
from nmt_cli.text.model_languages import MANY, TAG, ModelLanguages, listed
from nmt_cli.text.shortlist import Shortlist
from nmt_cli.text.tokenizer import Side
from nmt_cli.text.tokenizers import Recipe, Tokenizers, numbered_tokenizers
from nmt_cli.text.vocabulary import Vocabulary

PositionRule = Literal["marian", "huggingface"]

Positions = Literal["marian", "sinusoidal"]
Activation = Literal["relu", "gelu", "gelu_tanh", "swish"]

POSITIONS: Mapping[PositionRule, Positions] = {"marian": "marian", "huggingface": "sinusoidal"}
"""Our `model.positions` for the sinusoids of each toolkit."""

ACTIVATIONS: Mapping[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "swish": "swish",
    "silu": "swish",
}
"""Our `model.activation` for each name in Hugging Face and fairseq."""

PAIR = re.compile(r"(?:.*-)?([a-z]{2,3})-([a-z]{2,3})")
"""Names of folders that end with both language codes, such as opus-mt-en-de."""

LANGUAGE_CODE = re.compile(r">>\S+<<")

UNTOUCHED = TextConfig(unicode="none", words="raw")
"""Text settings of imported models: nmt changes no text. Their SentencePiece models contain all rules."""

TRAINING = "train.toml"
"""Settings file beside the model. `nmt train --config` continues training with it."""

TRAINING_HEAD = "# nmt train DATASET --config this file --init-from this folder\n[model]\n"


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of `nmt import`. None means that the value comes from the model."""

    source_lang: str | None = None
    target_lang: str | None = None
    positions: PositionRule | None = None

    def languages(self, source: str, target: str, path: Path, otherwise: str = "") -> tuple[str, str]:
        """Return the source and the target language. Raise `UserError`, which names `path`, if one is
        unknown.

        source, target: the languages that the model records, or "".
        path: the file or folder of the model.
        otherwise: the name of an unknown language. "" refuses it.

        Each language is the first of these that is there: the option, the one that the model records, and the
        one in the name of the model's folder or of one of its next two parents. A model that was downloaded
        from the Hub has its name there.
        """
        folder = (path.parent if path.is_file() else path).resolve()
        own, *parents = folder, *folder.parents[:2]
        # A parent such as my-old is more often not a pair of languages.
        names = [own.name, *(path.name for path in parents if path.name.count("-") > 1)]
        pair = next((match.groups() for match in map(PAIR.fullmatch, names) if match), ("", ""))
        languages = (
            self.source_lang or source or pair[0] or otherwise,
            self.target_lang or target or pair[1] or otherwise,
        )
        if not languages[0] or not languages[1]:
            raise UserError(f"{path} does not record its languages. Add --source-lang and --target-lang.")
        return languages


@dataclass(frozen=True, slots=True)
class Foreign:
    """The contents of a model folder, read from another toolkit's model."""

    kind: str
    """Name of the toolkit, shown to people."""

    config: ModelConfig
    tokenizers: Tokenizers
    tensors: Mapping[str, Tensor]
    """Tensors by our names."""

    search: Mapping[str, Any] = field(default_factory=dict)
    """The toolkit's own search settings, under our names."""

    longest: int | None = None
    """Maximum sentence length in tokens that the model was made for, if known."""

    notes: Sequence[str] = ()
    """Notes for the user."""

    trained_on: Mapping[str, Any] = field(default_factory=dict)
    """Training record of a model that nmt exported."""

    shortlist: Shortlist | None = None


def of_pieces(languages: tuple[str, str]) -> Recipe:
    """Return the recipe of tokenisers with SentencePiece models for `foreign_tokenizers`."""
    return Recipe("sentencepiece", True, *languages, UNTOUCHED)


def of_many_languages(
    usual: tuple[str, str], codes: Sequence[str], target_symbols: Side, where: Path
) -> Recipe:
    """Return the recipe of a model with a symbol for each language, such as `fra_Latn`, `__fr__` or `<2fr>`.

    usual: the direction of calls that name no language. `MANY` is no language.
    codes: the symbols.
    target_symbols: the side that begins with the symbol of the target language.

    Raise `UserError`, which names `where`, for an unknown language.
    """
    tags = {match["name"]: match[0] for match in map(TAG.fullmatch, codes) if match}
    names = tags or {code.strip("_"): code for code in codes}
    # A source without a symbol may be in any language.
    checked = usual if target_symbols == "target" else usual[1:]
    for lang in checked:
        if lang != MANY and not language_in(names, lang):
            offered = nearest_language(lang, names) or f"it has {listed(names)}."
            raise UserError(f"{where} has no language {lang}: {offered}")
    source, target = (language_in(names, lang) or lang for lang in usual)
    sources = names if target_symbols == "target" else dict.fromkeys([*names], "")
    languages = ModelLanguages(sources, names, target_symbols)
    symbols = languages.begins(source, target) if target in names else ("", "")
    begins = symbols if any(symbols) else ()
    recipe = of_pieces((source, target))
    return replace(recipe, symbols=tuple(codes), begins=begins, languages=languages)


def foreign_tokenizers(
    recipe: Recipe, models: Mapping[Side, bytes], sides: Mapping[Side, Vocabulary]
) -> Tokenizers:
    """Return the tokenisers of another toolkit's model.

    recipe: without symbols, these are source entries such as ">>de<<". What both sides share does not count.
    models: the content of each side's SentencePiece model, or of its codes of subword-nmt if the recipe's
        kind is "bpe".
    sides: the vocabularies. If they are equal, both sides share one.
    """
    joint = sides["source"] == sides["target"]
    codes = tuple(entry for entry in sides["source"].entries if LANGUAGE_CODE.fullmatch(entry))
    own = joint and models["source"] != models["target"]
    recipe = replace(recipe, joint=joint, symbols=recipe.symbols or codes, own_models=own)
    files = {side: {"model": content} for side, content in models.items()}
    for side, content in models.items() if recipe.kind == "bpe" else ():
        alphabet = {*"".join(entry.removesuffix("@@") for entry in sides[side].entries)} - {" ", "\n"}
        files[side] = {"codes": content, "characters.txt": "".join(sorted(alphabet)).encode()}
    return numbered_tokenizers(recipe, files, sides)


def padded_entries(entries: Sequence[str], rows: int, where: Path | str) -> tuple[str, ...]:
    """Return `entries`, padded with empty entries to `rows`, the number of embeddings.

    An entry with a line break becomes empty, because a vocabulary file cannot store it. Raise `UserError`,
    which names `where`, for more entries than `rows`, and for an entry that occurs twice.
    """
    if len(entries) > rows:
        raise UserError(
            f"{where} has {len(entries):,} entries, but the model has only {rows:,}. Copy it again."
        )
    texts = ["" if "\n" in entry else entry for entry in entries] + [""] * (rows - len(entries))
    if len({*filter(None, texts)}) < sum(map(bool, texts)):
        raise UserError(f"{where} has a piece twice. Copy it again.")
    return tuple(texts)


def foreign_vocabulary(
    entries: tuple[str, ...], *, end: int, unknown: int, start: int | None = None, never: Iterable[int] = ()
) -> Vocabulary:
    """Return the vocabulary of `padded_entries`. Search produces neither empty entries nor the ids in
    `never`. The exceptions are `end` and `unknown`."""
    excluded = {*never, *(i for i, text in enumerate(entries) if not text)} - {end, unknown}
    return Vocabulary(entries, end, start, unknown, tuple(sorted(excluded)))


def check_free(out: Path) -> None:
    """Raise `UserError` if `out` cannot be created, is a file, or is a folder that is not empty."""
    refuse_other_files(out)
    check_writable(out)


def write(foreign: Foreign, out: Path) -> None:
    """Write the model folder `out`, completely or not at all. It includes `train.toml`, with which `nmt
    train` continues, and records the toolkit and its search settings."""
    origin: dict[str, Any] = {"imported": foreign.kind}
    if foreign.search:
        origin["search"] = dict(foreign.search)
    longest = {"longest": foreign.longest} if foreign.longest else {}
    identity = Identity(foreign.config, foreign.tokenizers, {**foreign.trained_on, **longest})
    settings = asdict(foreign.config)
    if foreign.config.positions != "learned":
        del settings["longest"]  # it has no effect with other positions, and would be refused
    lines = [f"{name} = {toml_literal(value)}\n" for name, value in settings.items()]
    with folder_written_whole(out) as folder:
        write_model(folder, identity, foreign.tensors, origin)
        if foreign.shortlist:
            write_shortlist(folder, foreign.shortlist, foreign.tokenizers)
        (folder / TRAINING).write_text("".join([TRAINING_HEAD, *lines]), encoding="utf-8")
