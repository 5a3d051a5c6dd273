"""Our normalisation as a part of a SentencePiece model, for exports.

Other programs apply only the normalisation inside the model's file. There it is a compiled table of rules,
each of which replaces one text by another. Only the learner of SentencePiece can compile it. So a small model
is learnt with our rules, and its table is copied into the exported model.
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
"""The field inside a model's normaliser that has the table."""


def with_normalization(model: bytes, text: TextConfig) -> bytes:
    """Return the content of a SentencePiece file that normalises as `text` does. It replaces the model's own
    normalisation.

    The rules cover single characters, with or without combining marks. A change that depends on more of the
    text is not included.
    """
    return replaced(model, NORMALIZER, replaced(field(model, NORMALIZER), TABLE, _table(text)))


@cache  # both sides of a model need it, and a scan of all characters takes 0.2 s
def _table(text: TextConfig) -> bytes:
    """Return the table with rules for all characters that `text` changes."""
    rules = list(_rules(Normalizer(text, fold_space_mark=True)))
    return field(field(_model_with_rules(rules), NORMALIZER), TABLE)


def _rules(normalize: Normalizer) -> Iterator[tuple[str, str]]:
    """Yield (character, replacement) for each character that `normalize` changes. Spellings of a character
    with separate combining marks are included."""

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
    """Learn a minimal model, and return the content of its file. Each rule is a text and its replacement."""
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
