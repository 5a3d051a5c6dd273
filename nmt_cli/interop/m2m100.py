"""Read and write the tokenisers of M2M100 and NLLB: one SentencePiece model, fairseq's special tokens, many
languages.

Every source and target sentence begins with its language code. M2M100 lists its pieces in `vocab.json`. NLLB
has no `vocab.json`: its ids are the ids of the SentencePiece model plus 1.
"""

from collections.abc import Mapping
from pathlib import Path

from nmt_cli.errors import UserError
from nmt_cli.interop.fairseq import END, MARKS, PADDING, START, vocabulary_of
from nmt_cli.interop.foreign import ImportOptions, foreign_tokenizers, of_many_languages
from nmt_cli.interop.foreign_settings import (
    ForeignSettings,
    read_ids,
    read_settings,
    read_settings_if_any,
    read_spm,
)
from nmt_cli.interop.weights import MAX_ROWS
from nmt_cli.text.model_languages import MANY
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.tokenizer import SIDES
from nmt_cli.text.tokenizers import Tokenizers

KIND = "m2m_100"
"""Model type of M2M100 and NLLB in `config.json`."""

SPM, VOCABULARY, FAST = "sentencepiece.bpe.model", "vocab.json", "tokenizer.json"
SPECIAL_TOKENS, TOKENIZER = "special_tokens_map.json", "tokenizer_config.json"
MASK = "<mask>"

M2M100 = (
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he "
    "hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl "
    "no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi "
    "yo zh zu"
)
KNOWN: Mapping[str, str] = {"m2m100": M2M100, "wmt21": "en ha is ja cs ru zh de"}
"""The languages of each `language_codes`, in the order of their ids. Tokenisers that transformers 5 made from
files are saved with this name only."""

NOTE = "nmt translate chooses among {} languages with --source-lang and --target-lang"


def tokenizers(folder: Path, settings: ForeignSettings, rows: int, options: ImportOptions) -> Tokenizers:
    """Return the tokenisers in `folder`, with a vocabulary padded to `rows`, the model's number of entries.

    Raise `UserError` for missing or damaged files, for ids of special tokens that are not those of fairseq,
    for an unknown language, and for more than `rows` entries.
    """
    for name, mark in (("decoder_start_token_id", END), ("eos_token_id", END), ("pad_token_id", PADDING)):
        settings.demand(name, mark)
    content = read_spm(folder / SPM)
    entries = _pieces(folder, content, rows)
    codes = _added(folder, len(entries))
    for i, code in codes.items():
        entries += [""] * (i + 1 - len(entries))
        entries[i] = code
    masks = [i for i, entry in enumerate(entries) if entry == MASK]
    vocabulary = vocabulary_of(entries, rows, folder, masks)
    symbols = tuple(code for code in codes.values() if code != MASK)
    settings = read_settings_if_any(folder / TOKENIZER)
    source, target = (settings.text(name, "").strip("_") for name in ("src_lang", "tgt_lang"))
    usual = options.languages(source, target, folder, MANY)
    models, sides = dict.fromkeys(SIDES, content), dict.fromkeys(SIDES, vocabulary)
    return foreign_tokenizers(of_many_languages(usual, symbols, "target", folder), models, sides)


def _pieces(folder: Path, spm: bytes, rows: int) -> list[str]:
    """Return the special tokens `MARKS`, then the pieces, in the order of their ids.

    They are those of `vocab.json`. Without it, they are those of the SentencePiece model `spm`, without its
    three special tokens. Raise `UserError` if the ids in `vocab.json` are not 0 to n - 1, or do not begin
    with `MARKS`.
    """
    if not (folder / VOCABULARY).is_file():
        return [*MARKS, *Pieces(spm).written[len(MARKS) - 1 :]]
    ids = read_ids(folder / VOCABULARY, rows)
    entries = sorted(ids, key=lambda piece: ids[piece])
    if ids != {piece: i for i, piece in enumerate(entries)}:
        raise UserError(f"{folder / VOCABULARY} does not number its pieces from 0. Copy it again.")
    if tuple(entries[: len(MARKS)]) != MARKS:
        raise UserError(
            f"{folder / VOCABULARY} does not begin with {' '.join(MARKS)}, so nmt does not support it."
        )
    return entries


def _added(folder: Path, pieces: int) -> dict[int, str]:
    """Return the language codes and the mask token by id.

    They are in `tokenizer.json`. Without this file, the codes in other settings are numbered from `pieces`
    on. Raise `UserError` if no file in `folder` has a language, for a code that is not one word, and for an
    id over `MAX_ROWS`.
    """
    if (folder / FAST).is_file():
        added = read_settings(folder / FAST).list_of("added_tokens", object)
        tokens = [ForeignSettings(token, f"{folder / FAST}: added_tokens") for token in added]
        codes = {token.integer("id"): token.text("content") for token in tokens}
        codes = {i: code for i, code in codes.items() if i >= len(MARKS)}
    else:
        files = [read_settings_if_any(folder / name) for name in (SPECIAL_TOKENS, TOKENIZER)]
        keys = ("additional_special_tokens", "extra_special_tokens")
        listed = next(filter(None, (file.list_of(key, str) for file in files for key in keys)), None)
        if not listed and "language_codes" in files[1]:
            known = files[1].choice("language_codes", KNOWN, "m2m100")
            listed = [f"__{code}__" for code in known.split()]
        if not listed:
            raise UserError(
                f"{folder} names no languages: it has neither {FAST} nor a list in {SPECIAL_TOKENS} or "
                f"{TOKENIZER}, where language_codes is missing, too. Download the whole folder."
            )
        # NLLB has a mask token after its codes. M2M100 has none.
        mask = [] if (folder / VOCABULARY).is_file() else [MASK]
        # A tokeniser that transformers 5 makes from these files, as from our exports, has it before them.
        is_first = listed == files[1].list_of(keys[1], str)
        codes = dict(enumerate([*mask, *listed] if is_first else [*listed, *mask], start=pieces))
    # A huge id would allocate an entry for each id below it.
    if wrong := [code for i, code in codes.items() if i > MAX_ROWS or len(code.split()) != 1]:
        raise UserError(f"{folder}: {wrong[0][:40]!r} is not a language code. Copy the folder again.")
    return codes


# Export

MODEL_MARKS = 3
"""The number of special tokens with which NLLB's SentencePiece models begin: <unk>, <s> and </s>."""


def losses(tokenizers: Tokenizers) -> list[str]:
    """Return a message for each feature of the tokenisers that NLLB's tokeniser does not support, or []."""
    model, recipe = tokenizers.source.subwords, tokenizers.recipe
    if not isinstance(model, Pieces) or model.draws_by != "dropout" or not recipe.joint or recipe.own_models:
        return ["NLLB's tokeniser needs one SentencePiece model of BPE for both sides"]
    special = [i for i, piece in enumerate(model.entries) if piece is None]
    return [] if special == [*range(MODEL_MARKS)] else ["the special tokens are not the first three pieces"]


def exported_ids(tokenizers: Tokenizers) -> list[int | None]:
    """Return our id of each entry that NLLB's tokeniser numbers, in its order. None means that we have none.

    The order is: special tokens, pieces of the SentencePiece model, the mask token, language codes.
    """
    vocabulary, model = tokenizers.target.vocabulary, tokenizers.target.subwords
    assert isinstance(model, Pieces)
    ids: dict[str, int] = {entry: i for i, entry in enumerate(vocabulary.entries) if entry}
    pieces = [ids.get(piece) for piece in model.written[MODEL_MARKS:]]
    codes = [ids[code] for code in tokenizers.recipe.symbols]
    marks = [ids.get(MARKS[START]), ids.get(MARKS[PADDING]), vocabulary.end, vocabulary.unknown]
    return [*marks, *pieces, ids.get(MASK), *codes]


def tokenizer_settings(tokenizers: Tokenizers) -> dict[str, object]:
    """Return the content of `tokenizer_config.json`, from which transformers makes NLLB's tokeniser. Users
    name languages by their codes."""
    recipe = tokenizers.recipe
    usual = dict(zip(("src_lang", "tgt_lang"), recipe.begins, strict=False))
    return {"tokenizer_class": "NllbTokenizer", "extra_special_tokens": [*recipe.symbols], **usual}
