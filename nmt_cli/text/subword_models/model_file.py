"""A SentencePiece model's file: a protocol buffer, read only as far as fields begin and end."""

from collections.abc import Iterator

from nmt_cli.errors import UserError

PIECE, NORMALIZER = 1, 3
"""The fields of a model: a piece each, in the order of their numbers, and its normaliser."""

KIND, DEFINED = 3, b"\x04"
"""The field of a piece that says what it is, and its content in a user-defined one."""

BYTES_FIELD = 2
"""The wire type of what has a length."""


def defined(model: bytes) -> set[int]:
    """The numbers of the user-defined pieces."""
    pieces = (model[content:end] for found, _, content, end in _fields(model) if found == PIECE)
    return {number for number, piece in enumerate(pieces) if field(piece, KIND) == DEFINED}


def field(message: bytes, number: int) -> bytes:
    """The content of a field; empty where there is none."""
    return next((message[content:end] for found, _, content, end in _fields(message) if found == number), b"")


def replaced(message: bytes, number: int, content: bytes) -> bytes:
    """`message` with another `content` in a field."""
    rest = b"".join(message[start:end] for found, start, _, end in _fields(message) if found != number)
    # The order of the fields does not matter in a protocol buffer.
    return rest + _as_varint(number << 3 | BYTES_FIELD) + _as_varint(len(content)) + content


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
