"""Normalisation inside a SentencePiece model, for programs that apply only the normalisation of the model.

SentencePiece compiles rules into a table when it learns a model. So a temporary model is learnt with the
rules of this package. The table of the temporary model replaces the table of the other model.
"""

import io
import tempfile
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import sentencepiece

from nmt_cli.text.config import TextConfig
from nmt_cli.text.normalize import Normalizer
from nmt_cli.text.subword_models.model_file import NORMALIZER, field, replaced

TABLE = 2
"""The field of a normaliser that contains its table."""


def with_normalization(model: bytes, text: TextConfig) -> bytes:
    """Return the SentencePiece file `model` with the normalisation of `text` instead of its own. Include only
    changes of single characters, with or without their combining marks."""
    return replaced(model, NORMALIZER, replaced(field(model, NORMALIZER), TABLE, _table(text)))


@cache  # both sides of a model need it, and a scan of all characters takes 0.2 s
def _table(text: TextConfig) -> bytes:
    """Return the table of a normaliser that does what `text` asks of single characters."""
    rules = list(_rules(Normalizer(text, fold_space_mark=True)))
    return field(field(_model_with_rules(rules), NORMALIZER), TABLE)


def _rules(normalize: Normalizer) -> Iterator[tuple[str, str]]:
    """Yield (text, result) for each character, and each decomposed character, that `normalize` changes.
    Whitespace becomes a space. Leave out unassigned codes, surrogates and private use."""

    def in_text(text: str) -> str:
        return normalize(f"0{text}0")[1:-1]  # at the ends of a text, spaces disappear

    for code in range(1, 0x110000):
        character = chr(code)
        # Unassigned codes, surrogates and private use: most codes, which normalisation does not change.
        if unicodedata.category(character) in ("Cn", "Cs", "Co"):
            continue
        if (result := in_text(character)) != character:
            yield character, result
        parts = unicodedata.decomposition(character)
        # A decomposition with "<…>" is only similar to the character. The rule above covers it.
        if not parts or parts.startswith("<"):
            continue
        one_step = "".join(chr(int(part, 16)) for part in parts.split())
        # A character with two marks decomposes in two steps, and a text may contain the result of either.
        for spelling in {one_step, unicodedata.normalize("NFD", character)}:
            if len(spelling) > 1 and (result := in_text(spelling)) != spelling:
                yield spelling, result


def _model_with_rules(rules: list[tuple[str, str]]) -> bytes:
    """Return the content of a minimal model file with `rules`. Each rule is a text and its replacement."""
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rules.tsv"
        lines = (f"{_codes(before)}\t{_codes(after)}\n" for before, after in rules)
        file.write_text("".join(lines), encoding="ascii")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["a b c d e"] * 9),
            model_writer=out,
            vocab_size=9,
            model_type="char",
            normalization_rule_tsv=str(file),
            minloglevel=3,
        )
    return out.getvalue()


def _codes(text: str) -> str:
    return " ".join(f"{ord(character):X}" for character in text)
