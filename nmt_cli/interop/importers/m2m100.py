"""The tokenisers of M2M100's and NLLB's folders: one SentencePiece model, marks of fairseq's, many languages.

A sentence begins with the code of its language, on both sides. NLLB numbers its pieces as the SentencePiece
model does but for one more mark; M2M100 has a list of them.
"""

from collections.abc import Sequence
from pathlib import Path

from nmt_cli.errors import UserError
from nmt_cli.interop.exporters.exported import UNTOUCHED
from nmt_cli.interop.foreign import Wanted
from nmt_cli.interop.told import Told, told_in
from nmt_cli.runtime.foreign_text import read_ordinary
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.tokenizers import Recipe, Tokenizers, numbered_tokenizers
from nmt_cli.text.vocabulary import Vocabulary

KIND = "m2m_100"
"""What their `config.json` calls both."""

SPM, VOCABULARY, FAST = "sentencepiece.bpe.model", "vocab.json", "tokenizer.json"
TOLD = ("special_tokens_map.json", "tokenizer_config.json")
MARKS = ("<s>", "<pad>", "</s>", "<unk>")
START, PADDING, END, UNKNOWN = range(4)
MASK = "<mask>"
FIRST = PADDING + 1
"""Where its positions begin."""

SHOWN = 6
"""So many languages are named where one is not known."""

NOTE = (
    "a line that begins with the code of another language, such as {}, is of that; with input.prefix=true, "
    "the code of its translation's may stand behind a tab"
)


def tokenizers(folder: Path, told: Told, rows: int, wanted: Wanted) -> Tokenizers:
    """What is in `folder`, for a model of so many entries; `UserError` where it isn't whole."""
    for name, mark in (("decoder_start_token_id", END), ("eos_token_id", END), ("pad_token_id", PADDING)):
        told.demand(name, mark)
    if not (folder / SPM).is_file():
        raise UserError(f"{folder / SPM} is missing; download the whole folder.")
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
    if len({*filter(None, entries)}) < sum(map(bool, entries)):
        raise UserError(f"{folder} has a piece twice; copy it again.")
    entries += [""] * (rows - len(entries))
    never = (START, PADDING, *(i for i, entry in enumerate(entries) if not entry or entry == MASK))
    vocabulary = Vocabulary(tuple(entries), END, END, UNKNOWN, never)
    return _of_pair(folder, wanted, [code for code in codes.values() if code != MASK], content, vocabulary)


def _pieces(folder: Path, spm: bytes) -> list[str]:
    """Marks and pieces in their order."""
    if not (folder / VOCABULARY).is_file():
        return [*MARKS, *Pieces(spm).written[len(MARKS) - 1 :]]
    known = told_in(folder / VOCABULARY)
    order = {known.integer(piece): piece for piece in known.names()}
    if [*sorted(order)] != [*range(len(known.names()))]:
        raise UserError(f"{folder / VOCABULARY} does not number its pieces from 0 on; copy it again.")
    entries = [order[i] for i in range(len(order))]
    if tuple(entries[: len(MARKS)]) != MARKS:
        raise UserError(f"{folder / VOCABULARY} does not begin with {' '.join(MARKS)}; nmt doesn't know it.")
    return ["" if "\n" in entry else entry for entry in entries]


def _added(folder: Path, pieces: int) -> dict[int, str]:
    """The codes of languages by their ids: as `tokenizer.json` says, or in their order behind the pieces."""
    if (folder / FAST).is_file():
        added = told_in(folder / FAST).parts("added_tokens")
        found = {each.integer("id"): each.text("content") for each in added}
        return _sane(folder, {i: token for i, token in found.items() if i >= len(MARKS)})
    for name in TOLD:
        if (folder / name).is_file():
            told = told_in(folder / name)
            codes = told.texts("additional_special_tokens") or told.texts("extra_special_tokens")
            if codes:
                mask = [] if (folder / VOCABULARY).is_file() else [MASK]
                return _sane(folder, dict(enumerate([*codes, *mask], start=pieces)))
    raise UserError(f"{folder} names no languages ({FAST}, {TOLD[0]}); download the whole folder.")


def _sane(folder: Path, codes: dict[int, str]) -> dict[int, str]:
    most = 1 << 24
    if wrong := [code for i, code in codes.items() if i > most or not code.strip() or len(code.split()) > 1]:
        raise UserError(f"{folder}: {wrong[0][:40]!r} is no code of a language; copy the folder again.")
    return codes


def _of_pair(
    folder: Path, wanted: Wanted, codes: Sequence[str], spm: bytes, vocabulary: Vocabulary
) -> Tokenizers:
    told = told_in(folder / TOLD[1]) if (folder / TOLD[1]).is_file() else Told({}, str(folder))
    pair = wanted.languages(told.text("src_lang", "") or None, told.text("tgt_lang", "") or None, folder)
    recipe = Recipe(
        kind="sentencepiece",
        joint=True,
        source_lang=pair[0],
        target_lang=pair[1],
        text=UNTOUCHED,
        symbols=tuple(codes),
        begins=tuple(_code(folder, lang, codes) for lang in pair),
    )
    return numbered_tokenizers(recipe, {"joint": {"model": spm}}, {"joint": vocabulary})


def _code(folder: Path, lang: str, codes: Sequence[str]) -> str:
    """M2M100 writes a language's code so: __en__."""
    for code in (lang, f"__{lang}__"):
        if code in codes:
            return code
    alike = [code for code in codes if code.strip("_")[:2] == lang[:2]] or [*codes]
    told = ", ".join(code.strip("_") for code in alike[:SHOWN])
    raise UserError(f"{folder} has no language {lang}; it has {told}{' ...' if len(alike) > SHOWN else ''}.")
