"""Our normalisation inside a SentencePiece model, for programs that know no other.

SentencePiece compiles rules into a table as it learns a model. So a throw-away model is learnt with our
rules, and its table put in the place of the other's. Both are protocol buffers, of which no more is read here
than where a field begins and ends.
"""

import io
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import sentencepiece

from nmt_cli.errors import UserError
from nmt_cli.text.normalize import Normalizer

NORMALIZER, TABLE = 3, 2
"""The fields of a model that hold its normaliser, and of that, its table."""

BYTES_FIELD = 2
"""The wire type of what has a length."""


def with_normalization(model: bytes, normalize: Normalizer) -> bytes:
    """`model` with `normalize` before it, as far as it is a matter of one character or a composed one."""
    table = _field(_field(_throw_away(list(_rules(normalize))), NORMALIZER), TABLE)
    return _replaced(model, NORMALIZER, _replaced(_field(model, NORMALIZER), TABLE, table))


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


def _fields(message: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Number, where it begins, where its content begins, and where it ends, of each field."""
    at = 0
    while at < len(message):
        start = at
        key, at = _varint(message, at)
        kind = key & 7
        content = at
        if kind == BYTES_FIELD:
            size, content = _varint(message, at)
            at = content + size
        elif kind == 0:
            _, at = _varint(message, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise UserError("this is no SentencePiece model; give a file that spm_train wrote.")
        yield key >> 3, start, content, at


def _field(message: bytes, number: int) -> bytes:
    """The content of a field; empty where there is none."""
    return next((message[content:end] for found, _, content, end in _fields(message) if found == number), b"")


def _replaced(message: bytes, number: int, content: bytes) -> bytes:
    rest = b"".join(message[start:end] for found, start, _, end in _fields(message) if found != number)
    # The order of the fields does not matter in a protocol buffer.
    return rest + _as_varint(number << 3 | BYTES_FIELD) + _as_varint(len(content)) + content


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return value, at


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
