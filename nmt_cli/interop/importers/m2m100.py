"""Read the tokenisers of M2M100 and NLLB: one SentencePiece model, fairseq's special tokens, many languages.

Every source and target sentence begins with its language code. M2M100 lists its pieces in `vocab.json`. NLLB
has no `vocab.json`: its ids are the ids of the SentencePiece model plus 1.
"""

from collections.abc import Sequence
from pathlib import Path

from nmt_cli.errors import UserError
from nmt_cli.interop.exporters.exported import UNTOUCHED
from nmt_cli.interop.foreign import ImportOptions
from nmt_cli.interop.foreign_settings import ForeignSettings, read_settings, read_settings_if_any
from nmt_cli.interop.importers.fairseq import END, MARKS, PADDING, vocabulary_of
from nmt_cli.runtime.foreign_text import read_ordinary
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.tokenizer import SIDES
from nmt_cli.text.tokenizers import Recipe, Tokenizers, numbered_tokenizers
from nmt_cli.text.vocabulary import Vocabulary

KIND = "m2m_100"
"""Model type of M2M100 and NLLB in `config.json`."""

SPM, VOCABULARY, FAST = "sentencepiece.bpe.model", "vocab.json", "tokenizer.json"
SPECIAL_TOKENS, TOKENIZER = "special_tokens_map.json", "tokenizer_config.json"
MASK = "<mask>"

SHOWN = 6
"""Number of languages that an error lists."""

NOTE = (
    "a line that begins with a language code, such as {}, is in that language. With input.prefix=true, "
    "the code of the target language may follow the line after a tab"
)


def tokenizers(folder: Path, settings: ForeignSettings, rows: int, options: ImportOptions) -> Tokenizers:
    """Return the tokenisers in `folder`. Pad their shared vocabulary to `rows`, the model's number of
    entries. Raise `UserError` for missing or damaged files, special ids other than fairseq's, a missing
    language, or over `rows` entries."""
    for name, mark in (("decoder_start_token_id", END), ("eos_token_id", END), ("pad_token_id", PADDING)):
        settings.demand(name, mark)
    if not (folder / SPM).is_file():
        raise UserError(f"{folder / SPM} is missing. Download the whole folder.")
    content = read_ordinary(folder / SPM)
    entries = _pieces(folder, content)
    codes = _added(folder, len(entries))
    for i, code in codes.items():
        entries += [""] * (i + 1 - len(entries))
        entries[i] = code
    if len(entries) > rows:
        raise UserError(
            f"{folder} has {len(entries):,} pieces and codes, but the model only {rows:,} entries."
        )
    entries += [""] * (rows - len(entries))
    vocabulary = vocabulary_of(entries, folder, never=("", MASK))
    return _of_pair(folder, options, [code for code in codes.values() if code != MASK], content, vocabulary)


def _pieces(folder: Path, spm: bytes) -> list[str]:
    """Return the special tokens `MARKS` and then the pieces, in the order of their ids. If `folder` has
    `vocab.json`, take the pieces from `vocab.json`, and make each piece with a newline empty. Otherwise take
    the pieces of `spm`, the content of the SentencePiece file, without its three special tokens. Raise
    `UserError` if the ids in `vocab.json` are not 0 to n - 1, or do not begin with `MARKS`."""
    if not (folder / VOCABULARY).is_file():
        return [*MARKS, *Pieces(spm).written[len(MARKS) - 1 :]]
    vocabulary_ids = read_settings(folder / VOCABULARY)
    order = {vocabulary_ids.integer(piece): piece for piece in vocabulary_ids.names()}
    if [*sorted(order)] != [*range(len(vocabulary_ids.names()))]:
        raise UserError(f"{folder / VOCABULARY} does not number its pieces from 0. Copy it again.")
    entries = [order[i] for i in range(len(order))]
    if tuple(entries[: len(MARKS)]) != MARKS:
        raise UserError(
            f"{folder / VOCABULARY} does not begin with {' '.join(MARKS)}, so nmt does not support it."
        )
    return ["" if "\n" in entry else entry for entry in entries]


def _added(folder: Path, pieces: int) -> dict[int, str]:
    """Return the language codes and the mask token by id, from `tokenizer.json`. Without this file, number
    the codes in other settings from `pieces` on. Raise `UserError` if no file in `folder` has a language."""
    if (folder / FAST).is_file():
        added = read_settings(folder / FAST).parts("added_tokens")
        by_id = {token.integer("id"): token.text("content") for token in added}
        return _sane(folder, {i: token for i, token in by_id.items() if i >= len(MARKS)})
    for name in (SPECIAL_TOKENS, TOKENIZER):
        settings = read_settings_if_any(folder / name)
        codes = settings.texts("additional_special_tokens") or settings.texts("extra_special_tokens")
        if codes:
            mask = [] if (folder / VOCABULARY).is_file() else [MASK]
            return _sane(folder, dict(enumerate([*codes, *mask], start=pieces)))
    raise UserError(f"{folder} names no languages ({FAST}, {SPECIAL_TOKENS}). Download the whole folder.")


def _sane(folder: Path, codes: dict[int, str]) -> dict[int, str]:
    """Return `codes`, texts by id. Raise `UserError` for a code that is not one word, or an id over 2^24."""
    max_id = 1 << 24
    if wrong := [
        code for i, code in codes.items() if i > max_id or not code.strip() or len(code.split()) > 1
    ]:
        raise UserError(f"{folder}: {wrong[0][:40]!r} is not a language code. Copy the folder again.")
    return codes


def _of_pair(
    folder: Path, options: ImportOptions, codes: Sequence[str], spm: bytes, vocabulary: Vocabulary
) -> Tokenizers:
    """Return tokenisers that begin sentences with their language's code in `codes`. Take languages from
    `options` or settings in `folder`. `spm` is file content. Raise `UserError` for a missing language."""
    settings = read_settings_if_any(folder / TOKENIZER)
    pair = options.languages(settings.text("src_lang", ""), settings.text("tgt_lang", ""), folder)
    recipe = Recipe(
        kind="sentencepiece",
        joint=True,
        source_lang=pair[0],
        target_lang=pair[1],
        text=UNTOUCHED,
        symbols=tuple(codes),
        begins=tuple(_code(folder, lang, codes) for lang in pair),
    )
    models = {side: {"model": spm} for side in SIDES}
    return numbered_tokenizers(recipe, models, dict.fromkeys(SIDES, vocabulary))


def _code(folder: Path, lang: str, codes: Sequence[str]) -> str:
    """Return the code of `lang` in `codes`: `lang` itself, or else `__lang__`. If `codes` has neither, raise
    `UserError`, which lists similar languages."""
    for code in (lang, f"__{lang}__"):
        if code in codes:
            return code
    similar = [code for code in codes if code.strip("_")[:2] == lang[:2]] or [*codes]
    listed = ", ".join(code.strip("_") for code in similar[:SHOWN])
    raise UserError(
        f"{folder} has no language {lang}. It has {listed}{' ...' if len(similar) > SHOWN else ''}."
    )
