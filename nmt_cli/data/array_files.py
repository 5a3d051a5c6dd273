"""Writing and reading of arrays and texts in pieces, so that a whole file is never in memory.

A text file with lines has an array of offsets beside it: the position at which each line begins, and the size
of the file.
"""

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

LINES_AT_ONCE = 100
HEADER = re.compile(
    rb"\{'descr': '([<>=|][biuf]\d+)', 'fortran_order': False, 'shape': \(([\d, ]*)\), \}\s*\n"
)
"""The header of a `.npy` file: the type of the numbers, and the length of each axis."""

Array = NDArray[Any]
Offsets = NDArray[np.int64]
Extent = tuple[Path, int, int]
"""The position of consecutive lines in a text file: the file, the first byte, and the end of the last
line."""


def mapped_array(path: Path) -> Array:
    """Return the array of a `.npy` file. Its numbers are read from disk when they are used. Raise
    `ValueError` or `OSError` if the file is damaged."""
    # `np.load` accepts pickles too, which can run any code. It reads the header with `ast`, which fails at
    # times if two threads use it (Python 3.11.0 to 3.11.7), and epochs are planned in threads.
    with path.open("rb") as file:
        version = npy.read_magic(file)
        size = int.from_bytes(file.read(2 if version == (1, 0) else 4), "little")
        header = HEADER.fullmatch(file.read(size))
        start = file.tell()
    if header is None:
        raise ValueError("the header is not one of a plain array")
    shape = tuple(int(length) for length in header[2].decode().split(",") if length.strip())
    return np.memmap(path, np.dtype(header[1].decode()), "r", start, shape)


class ArrayWriter:
    """Writes a one-dimensional `.npy` file whose length is not known in advance.

    The `with` block writes the final length to the header when it ends, but not after an error.
    """

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self._file = path.open("wb")
        self._dtype = np.dtype(dtype)
        self.length = 0
        self._write_header()

    def append(self, values: Array) -> None:
        """Write `values` at the end, converted to the type of the file."""
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self.length += len(values)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an error, the length in the header stays 0, so nothing reads an incomplete array.
        if kind is None:
            self._file.seek(0)
            self._write_header()
        self._file.close()

    def _write_header(self) -> None:
        """Write the header with the current length, at the current position of the file."""
        # NumPy reserves space in each header for the first axis to grow, so both headers are equally long.
        fields = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self.length,)}
        npy.write_array_header_1_0(self._file, fields)


class OffsetsWriter(ArrayWriter):
    """Writes the offset at which each sentence or line of another file begins, and at last the size of that
    file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, np.int64)
        super().append(np.zeros(1, np.int64))
        self.end = 0

    def append(self, values: Array) -> None:
        """Add sentences or lines, given by their lengths."""
        ends = self.end + np.cumsum(values, dtype=np.int64)
        super().append(ends)
        self.end = int(ends[-1]) if len(ends) else self.end


class TextWriter(ExitStack):
    """Writes lines of text to PREFIX.txt, and their offsets to PREFIX.lines.npy."""

    def __init__(self, prefix: Path) -> None:
        super().__init__()
        text = Path(f"{prefix}.txt")
        self._text = self.enter_context(text.open("wb"))
        self._offsets = self.enter_context(OffsetsWriter(Path(f"{prefix}.lines.npy")))

    def append(self, content: bytes, lengths: Array) -> None:
        """Add lines, given as one text with a line feed after each, and the number of bytes of each line,
        with its line feed."""
        self._text.write(content)
        self._offsets.append(lengths)


class TextReader(ExitStack):
    """Reads lines that `TextWriter` wrote, in any order. Neither text nor offsets are in memory."""

    def __init__(self, prefix: Path) -> None:
        super().__init__()
        self._path = Path(f"{prefix}.txt")
        self._offsets: Offsets = mapped_array(Path(f"{prefix}.lines.npy"))
        self._file = self.enter_context(self._path.open("rb"))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def extent(self, start: int, stop: int) -> Extent:
        """Return the position of the lines [`start`, `stop`) in the file, for another process."""
        return self._path, int(self._offsets[start]), int(self._offsets[stop])

    def content(self, start: int, stop: int) -> bytes:
        """Return the lines [`start`, `stop`) as bytes, with line feeds."""
        _, first, end = self.extent(start, stop)
        self._file.seek(first)
        return self._file.read(end - first)

    def lengths(self, start: int, stop: int) -> Array:
        """Return the number of bytes of each line in [`start`, `stop`), with line feeds."""
        return np.diff(self._offsets[start : stop + 1])

    def lines(self, numbers: Array) -> list[str]:
        """Return lines as text without line feeds. `numbers` are counted from 0 and ascend."""
        lines = []
        # Each read covers all text between its lines, which may be far apart, so a read takes only a few.
        for start in range(0, len(numbers), LINES_AT_ONCE):
            part = numbers[start : start + LINES_AT_ONCE]
            run = self.content(int(part[0]), int(part[-1]) + 1).split(b"\n")
            lines += [run[number].decode() for number in (part - part[0]).tolist()]
        return lines
