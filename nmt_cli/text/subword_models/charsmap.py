"""Our normalisation inside a SentencePiece model, for programs that know no other.

SentencePiece compiles rules into a table as it learns a model. So a throw-away model is learnt with our
rules, and its table put in the place of the other's.
"""

import io
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import sentencepiece

from nmt_cli.text.normalize import Normalizer
from nmt_cli.text.subword_models.model_file import NORMALIZER, field, replaced

TABLE = 2
"""The field of a normaliser that holds its table."""


def with_normalization(model: bytes, normalize: Normalizer) -> bytes:
    """`model` with `normalize` before it, as far as it is a matter of one character or a composed one."""
    table = field(field(_throw_away(list(_rules(normalize))), NORMALIZER), TABLE)
    return replaced(model, NORMALIZER, replaced(field(model, NORMALIZER), TABLE, table))


def _rules(normalize: Normalizer) -> Iterator[tuple[str, str]]:
    """What becomes of each character, and of each way to write a composed one."""
    for code in range(1, 0x110000):
        character = chr(code)
        # Unassigned, half of a pair, private: most codes are, and normalisation leaves them alone.
        if unicodedata.category(character) in ("Cn", "Cs", "Co"):
            continue
        became = " " if character.isspace() else normalize(character)
        if became != character:
            yield character, became
        parts = unicodedata.decomposition(character)
        # What stands behind a "<…>" is alike, not the same; whether it is to be replaced `normalize` has said
        # above.
        if not parts or parts.startswith("<"):
            continue
        once = "".join(chr(int(part, 16)) for part in parts.split())
        # With two marks on it a character is taken apart in two steps, and a text may have it after either.
        for written in {once, unicodedata.normalize("NFD", character)}:
            if len(written) > 1 and (became := normalize(written)) != written:
                yield written, became


def _throw_away(rules: list[tuple[str, str]]) -> bytes:
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
