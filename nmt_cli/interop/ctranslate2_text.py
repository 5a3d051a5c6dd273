"""Read the vocabularies of CTranslate2, and the SentencePiece models that its users keep beside them."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nmt_cli.errors import UserError
from nmt_cli.interop import m2m100
from nmt_cli.interop.conventions import SPMS, UNUSED
from nmt_cli.interop.fairseq import FILLER, MARKS
from nmt_cli.interop.foreign import (
    foreign_tokenizers,
    foreign_vocabulary,
    of_many_languages,
    of_pieces,
    padded_entries,
)
from nmt_cli.interop.foreign_settings import ForeignSettings, read_file, read_json, read_spm, read_text
from nmt_cli.text.config import TextConfig
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import Recipe, Tokenizers
from nmt_cli.text.vocabulary import Vocabulary

BPE = "bpe.model"
QUICKMT = ("src.spm.model", "tgt.spm.model")
SEGMENTERS: Sequence[tuple[str, str]] = (
    (SPMS["source"], SPMS["target"]),
    QUICKMT,
    ("joint.spm.model", "joint.spm.model"),  # of quickmt
    ("sentencepiece.model", "sentencepiece.model"),  # of Argos Translate
    (m2m100.SPM, m2m100.SPM),
)
"""Names of the SentencePiece models of source and target."""

MOSES = TextConfig(unicode="none", quotes=True, punctuation=True, words="moses_escaped")
"""Text settings of Argos Translate for BPE codes. It normalises punctuation in the style of Moses."""

PADDING = ("<blank>", "<pad>")

LANGUAGE = re.compile(r"__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}")
"""Language codes of M2M100, NLLB and mBART. Their users put them between the pieces of a text."""


def language_codes(folder: Path, beside: Path) -> tuple[str, ...]:
    """Return the language codes in the vocabulary of M2M100 or NLLB in `folder`. Another model has none: ().

    An entry that looks like a code, but is a piece of the SentencePiece model in `beside`, is text. Raise
    `UserError` if another kind of model has codes.
    """
    entries = _entries(folder, "source")
    if not any(map(LANGUAGE.fullmatch, entries)):
        return ()
    pieces = {piece for model in _spms(beside).values() for piece in Pieces(model).written}
    codes = tuple(entry for entry in entries if LANGUAGE.fullmatch(entry) and entry not in pieces)
    # Without its code, such a model translates into garbage.
    if codes and tuple(entries[: len(MARKS)]) != MARKS:
        raise UserError(
            f"{folder}: the vocabulary has the language code {codes[0]}, but is not of M2M100 or NLLB, so "
            "nmt does not know where it belongs. Import the model from which this one was converted."
        )
    return codes


def tokenizers_beside(
    folder: Path,
    languages: tuple[str, str],
    sides: Mapping[Side, Vocabulary],
    bare: bool,
    codes: tuple[str, ...],
) -> Tokenizers:
    """Return tokenisers for the vocabularies `sides`, from the SentencePiece models or BPE codes in `folder`.

    languages: source and target.
    bare: source sentences have no end token, as in `Recipe.bare_source`.
    codes: language codes. With them, sentences begin with that of their language.

    Raise `UserError` if the folder has no subword model, or if `codes` lack one of the languages.
    """
    if models := _spms(folder):
        many = of_many_languages(languages, codes, "target", folder) if codes else None
        recipe = replace(many or of_pieces(languages), bare_source=bare)
        return foreign_tokenizers(recipe, models, sides)
    if (folder / BPE).is_file():
        files = dict.fromkeys(SIDES, read_file(folder / BPE))
        return foreign_tokenizers(Recipe("bpe", True, *languages, MOSES, bare_source=bare), files, sides)
    listed = ", or ".join(" and ".join(dict.fromkeys(names)) for names in SEGMENTERS)
    raise UserError(f"{folder} has no SentencePiece model ({listed}) and no {BPE}. Copy it there.")


def _spms(folder: Path) -> dict[Side, bytes]:
    """Return the SentencePiece model of each side in `folder`, or {} if there are none."""
    for names in SEGMENTERS:
        if all((folder / name).is_file() for name in names):
            return {side: read_spm(folder / name) for side, name in zip(SIDES, names, strict=True)}
    return {}


def vocabularies(
    folder: Path,
    settings: ForeignSettings,
    rows: tuple[int, int],
    excluded: set[int],
    *,
    zeros: bool,
    bare: bool,
) -> dict[Side, Vocabulary]:
    """Return the vocabularies in `folder`. Equal ones of both sides are one object.

    rows: the numbers of embeddings of source and target, to which the vocabularies are padded.
    excluded: ids that search never produces, besides start tokens and padding.
    zeros: the target has no start token, because the decoder begins with zeros.
    bare: source sentences have no end token.

    Raise `UserError` for a missing or damaged file, for too many entries, and for a missing special token.
    """
    listed = [_entries(folder, side) for side in SIDES]
    source, target = [
        padded_entries(_distinct(entries), count, folder) for entries, count in zip(listed, rows, strict=True)
    ]
    start = None if zeros else settings.text("decoder_start_token")
    ends = [settings.text("eos_token", "</s>")]
    own = _vocabulary(folder, settings, target, ends, start, excluded)
    if listed[0] == listed[1] and rows[0] == rows[1]:
        return dict.fromkeys(SIDES, own)
    if bare:  # sources of old models of OpenNMT-py lack the end token, which is never used
        ends += [settings.text("bos_token", "<s>"), *PADDING]
    return {"source": _vocabulary(folder, settings, source, ends), "target": own}


def _entries(folder: Path, side: Side) -> list[str]:
    """Return the entries in {shared,SIDE}_vocabulary.json, or .txt with one entry per line. Raise `UserError`
    for a missing file, or another content."""
    paths = [folder / f"{name}_vocabulary.{kind}" for name in ("shared", side) for kind in ("json", "txt")]
    if not (path := next(filter(Path.is_file, paths), None)):
        raise UserError(
            f"{folder} has no {paths[0].name} and no {paths[2].name}. Copy the whole folder again."
        )
    if path.suffix == ".json":
        entries = read_json(path)
    else:
        # Not `splitlines`, which also splits at other characters that an entry may have.
        entries = read_text(path).replace("\r\n", "\n").removesuffix("\n").split("\n")
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise UserError(f"{path} is not a list of entries. Copy it again.")
    return entries


def _distinct(entries: Sequence[str]) -> list[str]:
    """Return `entries`, of which two kinds are empty: fillers, and repetitions of an earlier entry."""
    first: dict[str, int] = {}
    for i, entry in enumerate(entries):
        if not (UNUSED.fullmatch(entry) or entry.startswith(FILLER)):
            first.setdefault(entry, i)
    return [entry if first.get(entry) == i else "" for i, entry in enumerate(entries)]


def _vocabulary(
    folder: Path,
    settings: ForeignSettings,
    entries: tuple[str, ...],
    ends: Sequence[str],
    start: str | None = None,
    excluded: Collection[int] = (),
) -> Vocabulary:
    """Return the vocabulary of `padded_entries`. Raise `UserError` for a missing special token.

    ends: possible end tokens. The first that is an entry is taken.
    excluded: ids that search never produces, besides special tokens and padding.
    """
    ids: dict[str | None, int] = {entry: i for i, entry in enumerate(entries) if entry}
    unknown, end = settings.text("unk_token", "<unk>"), next(filter(ids.__contains__, ends), ends[0])
    if missing := [token for token in (unknown, end, start) if token is not None and token not in ids]:
        raise UserError(f"{folder}: the vocabulary has no {missing[0]}. Copy the whole folder again.")
    specials = (settings.text("bos_token", "<s>"), *PADDING, m2m100.MASK)
    never = {ids[token] for token in specials if token in ids}
    never |= {*excluded}
    return foreign_vocabulary(entries, end=ids[end], unknown=ids[unknown], start=ids.get(start), never=never)
