"""The file of a SentencePiece model: a protocol buffer, of which only the boundaries of fields are read."""

from collections.abc import Iterator

from nmt_cli.errors import UserError

PIECE, TRAINER, NORMALIZER = 1, 2, 3
"""Fields of a model: one for each piece, in order, one for the settings of learning, and the normaliser."""

KIND_OF_MODEL = 3
"""The field of the settings of learning that has the kind of the model."""

KIND, DEFINED = 3, b"\x04"
"""The field with the kind of a piece, and its content for a user-defined piece."""

BYTES_FIELD = 2
"""The wire type of a field with a length."""


def defined(model: bytes) -> set[int]:
    """Return the numbers of a model's user-defined pieces. `model` is the content of the model's file."""
    pieces = (model[content:end] for number, _, content, end in _fields(model) if number == PIECE)
    return {number for number, piece in enumerate(pieces) if field(piece, KIND) == DEFINED}


def field(message: bytes, number: int) -> bytes:
    """Return the content of a protocol buffer's first field with this number, or b"" if it is missing."""
    contents = (message[content:end] for field, _, content, end in _fields(message) if field == number)
    return next(contents, b"")


def replaced(message: bytes, number: int, content: bytes) -> bytes:
    """Return `message` with all fields of this `number` removed, and a new one with `content` at the end."""
    others = b"".join(message[start:end] for field, start, _, end in _fields(message) if field != number)
    # The order of fields does not matter in a protocol buffer.
    return others + _as_varint(number << 3 | BYTES_FIELD) + _as_varint(len(content)) + content


def _fields(message: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield (number, start, start of content, end) for each field. All but the number are offsets. Raise
    `UserError` for a field type that SentencePiece does not use."""
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
            raise UserError("this is not a SentencePiece model. Give a file that spm_train wrote.")
        yield key >> 3, start, content, at


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the varint at offset `at` and the offset after. If the end cuts it off, decode what is there."""
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
