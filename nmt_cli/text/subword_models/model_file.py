"""Reading and changing fields in the file of a SentencePiece model.

The file is a protocol buffer: a sequence of fields. A field has a number, and its content may be a protocol
buffer too. Only the boundaries of fields are decoded here. So no generated code is needed, and fields that we
do not know are kept.
"""

import struct
from collections.abc import Iterable, Iterator

from nmt_cli.errors import UserError

PIECE, TRAINER, NORMALIZER = 1, 2, 3
"""Fields of a model's file. Each piece has a field `PIECE`, in the order of their numbers. `TRAINER` has the
settings of learning."""

KIND_OF_MODEL = 3
"""The field inside `TRAINER` that has the kind of the model, such as BPE."""

KIND, DEFINED = 3, b"\x04"
"""The field of a piece that has its kind, and the content of this field if the user defined the piece."""

TEXT, SCORE = 1, 2
"""The fields of a piece that have its text and its score."""

WITHOUT_SPACES = b"\x18\x00\x20\x00"
"""The content of a normaliser that neither adds a space before a text nor removes spaces."""

BYTES_FIELD = 2
"""The type of a field that begins with the length of its content."""


def defined(model: bytes) -> set[int]:
    """Return the numbers of the pieces that the user defined, given the content of a model's file."""
    pieces = (model[content:end] for number, _, content, end in _fields(model) if number == PIECE)
    return {number for number, piece in enumerate(pieces) if field(piece, KIND) == DEFINED}


def field(message: bytes, number: int) -> bytes:
    """Return the content of the first field of `message` with this number, or b"" if there is none."""
    contents = (message[content:end] for field, _, content, end in _fields(message) if field == number)
    return next(contents, b"")


def replaced(message: bytes, number: int, content: bytes) -> bytes:
    """Return a protocol buffer in which one field with this `number` and `content`, at the end, replaces all
    fields with this number."""
    others = b"".join(message[start:end] for field, start, _, end in _fields(message) if field != number)
    # The order of fields does not matter in a protocol buffer.
    return others + _field_of(number, content)


def with_pieces(model: bytes, kept: set[int], added: Iterable[tuple[str, float, bytes]]) -> bytes:
    """Return the content of a model's file with the pieces `kept`, given by their numbers, and new pieces
    after them.

    added: the text, the score and the kind of each new piece. The kind b"" is that of learnt pieces.
    """
    fields = list(_fields(model))
    pieces = [model[start:end] for number, start, _, end in fields if number == PIECE]
    others = b"".join(model[start:end] for number, start, _, end in fields if number != PIECE)
    new = (_piece(text, score, kind) for text, score, kind in added)
    return b"".join([*(pieces[number] for number in sorted(kept)), *new, others])


def _piece(text: str, score: float, kind: bytes) -> bytes:
    """Return the field of a new piece."""
    message = _field_of(TEXT, text.encode()) + _as_varint(SCORE << 3 | 5) + struct.pack("<f", score)
    if kind:
        message += _as_varint(KIND << 3) + kind
    return _field_of(PIECE, message)


def _field_of(number: int, content: bytes) -> bytes:
    """Return a field that begins with the length of its content."""
    return _as_varint(number << 3 | BYTES_FIELD) + _as_varint(len(content)) + content


def _fields(message: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield (number, start, start of content, end) for each field of a protocol buffer. All but the number
    are offsets in `message`. An end is not compared with the length of `message`.

    Raise `UserError` for a type of field that SentencePiece does not use.
    """
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
        # Types 1 and 5 have a fixed size of 8 and 4 bytes.
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise UserError("this is not a SentencePiece model. Give a file that spm_train wrote.")
        yield key >> 3, start, content, at


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Decode the varint at offset `at`, an integer of 7 bits per byte. Return it, and the offset after it. If
    `message` ends inside, decode the bytes that are left."""
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        # The highest bit is set in all bytes but the last.
        if byte < 0x80:
            break
    return value, at


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
