"""Read and write Marian's binary files, the models of Bergamot and Firefox.

A file has a version, the number of items, a header for each item, then all names, all shapes, padding to 256
bytes, and the data of each item. Headers are (name length, type, dimensions, data length). All numbers are
little-endian, 8 bytes long, and those of shapes 4 bytes long.

Items of the types intgemm8 and intgemm16 are rounded matrices. A multiplier follows the integers, which are
about value x multiplier. These matrices are transposed, except for embeddings.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

import numpy
from numpy.typing import NDArray

from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import refuse_special

Array = NDArray[numpy.generic]

VERSION, ALIGNMENT = 1, 256
INT8, INTGEMM8 = 0x0101, 0x4101
FLOATS = {0x0402: "<f2", 0x0404: "<f4", 0x0408: "<f8", INT8: "<i1"}
ROUNDED = {INTGEMM8: "<i1", 0x4102: "<i2"}
"""NumPy's types for the types of items. `ROUNDED` have a multiplier."""

MAX_ITEMS, MAX_NAME, MAX_DIMENSIONS = 1 << 16, 1 << 10, 4
EMBEDDING = "Wemb"
"""Part of the names of embeddings, whose rounded data are not transposed."""

SCALE = "_QuantMultA"
"""End of the name of an activation scale, which belongs to an int8 matrix."""

LARGEST = 127
"""The largest int8 of a rounded matrix. -128 is not used."""


class Rounded(NamedTuple):
    """A matrix of int8 that is about values x multiplier."""

    levels: NDArray[numpy.int8]
    multiplier: numpy.float32


def rounded(matrix: NDArray[numpy.float32]) -> Rounded:
    """Return `matrix` rounded to int8. The largest absolute value becomes `LARGEST`."""
    # A matrix of zeros has no largest value to divide by.
    top = numpy.abs(matrix).max() or numpy.float32(1)
    multiplier = numpy.float32(LARGEST) / top
    levels = numpy.rint(matrix * multiplier).clip(-LARGEST, LARGEST)
    return Rounded(levels.astype(numpy.int8), multiplier)


def write(path: Path, items: Mapping[str, Array | Rounded]) -> None:
    """Write `items`: arrays of fp32 or int8, and rounded matrices. Pad the data of each item to 256 bytes."""
    headers, names, shapes, data = [VERSION, len(items)], b"", b"", []
    for name, item in items.items():
        array = item.levels if isinstance(item, Rounded) else item
        kind = INTGEMM8 if isinstance(item, Rounded) else INT8 if array.dtype == numpy.int8 else 0x0404
        transposed = isinstance(item, Rounded) and EMBEDDING not in name
        content = (array.T if transposed else array).tobytes()
        content += item.multiplier.tobytes() if isinstance(item, Rounded) else b""
        data.append(content + bytes(-len(content) % ALIGNMENT))
        names += name.encode() + b"\0"
        shapes += numpy.array(array.shape, "<i4").tobytes()
        # The zero byte after a name counts.
        headers += [len(name.encode()) + 1, kind, array.ndim, len(data[-1])]
    start = numpy.array(headers, "<u8").tobytes() + names + shapes
    # The length of the padding is stored before it, in 8 bytes.
    padding = -(len(start) + 8) % ALIGNMENT
    with path.open("wb") as file:
        file.writelines([start, padding.to_bytes(8, "little"), bytes(padding), *data])


def read(path: Path) -> dict[str, Array]:
    """Return the items by name. Rounded matrices become fp32, and other items keep their type.

    Activation scales are left out, because some files have them without a value. Raise `UserError` for a file
    that is damaged, cut off, not of version 1, or with matrices laid out for one kind of processor.
    """
    refuse_special(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        items: dict[str, Array] = {}
        for name, kind, shape, length in _headers(file, size, path):
            if name in items:
                raise UserError(f"{path} has {name!r} twice, so it is damaged. Copy it again.")
            if kind not in FLOATS and kind not in ROUNDED:
                raise UserError(
                    f"{path}: {name!r} is of type {kind:#x}, which nmt import does not support. "
                    "Import the .npz of the model."
                )
            # Read even if it is left out, because the next item follows.
            data = file.read(length)
            if not name.endswith(SCALE):
                items[name] = _array(data, name, kind, shape, path)
    return items


def _headers(file: IO[bytes], size: int, path: Path) -> Iterator[tuple[str, int, tuple[int, ...], int]]:
    """Yield the name, type, shape and data length of each item. `size` is that of the file.

    After each one, `file` is at the beginning of the item's data, which the caller has to read. Raise
    `UserError` if a number is out of range, or if the items are longer than the file.
    """

    def numbers(count: int, kind: str = "<u8") -> list[int]:
        content = file.read(count * int(kind[2:]))
        if len(content) < count * int(kind[2:]):
            raise _damaged(path, "it is cut")
        return [int(number) for number in numpy.frombuffer(content, kind)]

    version, count = numbers(2)
    if version != VERSION:
        raise _damaged(path, f"its version is {version}, not {VERSION}")
    if count > MAX_ITEMS:
        raise _damaged(path, f"it has {count:,} items")
    fields = numbers(4 * count)
    name_lengths, kinds, dimensions, lengths = (fields[i::4] for i in range(4))
    if max(name_lengths, default=0) > MAX_NAME or max(dimensions, default=0) > MAX_DIMENSIONS:
        raise _damaged(path, "a name or a shape is too long")
    names = [file.read(length).rstrip(b"\0").decode(errors="replace") for length in name_lengths]
    if any(not name.isprintable() for name in names):
        raise _damaged(path, "a name is not text")
    shapes = [tuple(numbers(length, "<i4")) for length in dimensions]
    (padding,) = numbers(1)
    # Before any data are read, so that a damaged length cannot demand memory.
    if file.tell() + padding + sum(lengths) > size:
        raise _damaged(path, "it is cut")
    file.seek(padding, 1)
    yield from zip(names, kinds, shapes, lengths, strict=True)


def _array(data: bytes, name: str, kind: int, shape: tuple[int, ...], path: Path) -> Array:
    """Return the values of an item in its `shape`. Rounded matrices are divided by their multiplier, and
    become fp32.

    Raise `UserError` if `data` are too short for `shape`, or if a dimension or a multiplier is not positive.
    """
    numbers, stored = math.prod(shape), numpy.dtype(FLOATS.get(kind) or ROUNDED[kind])
    end = numbers * stored.itemsize
    if min(shape, default=1) < 1 or end + (4 if kind in ROUNDED else 0) > len(data):
        raise _damaged(path, f"{name!r} has {len(data):,} bytes for the shape {list(shape)}")
    values = numpy.frombuffer(data, stored, numbers)
    if kind in FLOATS:
        return values.reshape(shape)
    multiplier = numpy.frombuffer(data, "<f4", 1, end)[0]
    if not 0 < multiplier < numpy.inf:
        raise _damaged(path, f"{name!r} has the multiplier {multiplier}")
    with numpy.errstate(over="ignore"):  # the caller refuses values that are not finite
        floats: Array = values * (numpy.float32(1) / multiplier)
    return floats.reshape(shape) if EMBEDDING in name else floats.reshape(shape[::-1]).T


def _damaged(path: Path, problem: str) -> UserError:
    return UserError(f"{path} is damaged ({problem}). Copy it again.")
