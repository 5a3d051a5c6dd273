"""Read `model.bin`, CTranslate2's file of weights. A file never makes the reader allocate more than its size,
but weights of fewer bits become fp32."""

import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import refuse_special

VERSIONS = range(4, 7)
"""Versions of the file with this layout. CTranslate2 writes 6 since 2022."""

DTYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
"""Type of a variable by its number in the file."""

MAX_AXES = 4

INTEGERS = (torch.int8, torch.int16)
"""Types of quantised weights. A value is the weight times its scale, rounded."""


class Binary(NamedTuple):
    """The content of a `model.bin`."""

    version: int
    specification: str
    """The kind of model, such as TransformerSpec."""

    revision: int
    tensors: Mapping[str, Tensor]
    """Variables by name. Weights are fp32, fp16 or bf16, also those of quantised models. Flags have any type
    and no axes. Tied weights are one tensor under several names."""


def read_binary(path: Path) -> Binary:
    """Return the content of a `model.bin`. Raise `UserError` for another version, a damaged file, or weights
    of 4 bits."""
    refuse_special(path)
    with path.open("rb") as file:
        reader = _Reader(file, path)
        version = reader.integer("I")
        if version not in VERSIONS:
            raise UserError(f"{path} has version {version}, but nmt reads {VERSIONS[0]} to {VERSIONS[-1]}.")
        specification, revision = reader.text(), reader.integer("I")
        variables = dict(reader.variable() for _ in range(reader.integer("I")))
        aliases = [(reader.text(), reader.text()) for _ in range(reader.integer("I"))]
    tensors = _dequantized(variables, path)
    for alias, name in aliases:
        if name in tensors:
            tensors[alias] = tensors[name]
        elif name not in variables:  # scales of quantised weights are in `variables` only
            raise UserError(f"{path} is damaged ({alias} repeats {name}, which is missing). Copy it again.")
    return Binary(version, specification, revision, tensors)


def _dequantized(variables: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Return `variables` with weights instead of their quantised values and scales. int8 has a scale per row,
    int16 one scale. Raise `UserError` for a missing or invalid scale, or a zero point."""
    tensors = dict(variables)
    for name, tensor in variables.items():
        if name + "_zero" in variables or (tensor.dim() and tensor.dtype == torch.int32):
            raise UserError(
                f"{path}: {name} is quantised to 4 bits (AWQ), which nmt import does not support."
            )
        if not tensor.dim() or tensor.dtype not in INTEGERS or tensor.dim() == 1:
            continue
        scale = tensors.pop(name + "_scale", None)
        if scale is None or not scale.is_floating_point() or scale.numel() not in (1, len(tensor)):
            raise UserError(f"{path} is damaged ({name} has no valid scale). Copy it again.")
        tensors[name] = tensor.float() / scale.float().view(-1, *[1] * (tensor.dim() - 1))
    return tensors


class _Reader:
    """Reads consecutive values of an open file. A value beyond the end of the file raises `UserError`."""

    def __init__(self, file: Any, path: Path) -> None:
        self._file, self._path = file, path
        self._left = path.stat().st_size

    def _take(self, count: int) -> bytes:
        """Return the next `count` bytes. Raise `UserError` before reading if the file has fewer."""
        content = self._file.read(count) if count <= self._left else b""
        self._left -= count
        if len(content) < count:
            raise self._damaged("it ends too early")
        return bytes(content)

    def _damaged(self, problem: str) -> UserError:
        return UserError(f"{self._path} is damaged or not of CTranslate2 ({problem}). Copy it again.")

    def integer(self, kind: str) -> int:
        """Return the next integer. `kind` is its code in `struct`."""
        (value,) = struct.unpack(f"<{kind}", self._take(struct.calcsize(kind)))
        return int(value)

    def text(self) -> str:
        """Return the next text, which is stored after its length, with a zero byte at its end."""
        try:
            return self._take(self.integer("H")).decode().rstrip("\0")
        except UnicodeDecodeError as error:
            raise self._damaged("a name is not UTF-8") from error

    def variable(self) -> tuple[str, Tensor]:
        """Return the name and the value of the next variable. Raise `UserError` if it is empty."""
        name = self.text()
        shape = [self.integer("I") for _ in range(self.integer("B"))]
        kind, size = self.integer("B"), self.integer("I")
        if (
            len(shape) > MAX_AXES
            or kind >= len(DTYPES)
            or not size
            or prod(shape) * DTYPES[kind].itemsize != size
        ):
            raise self._damaged(f"{name[:80]!r} has an invalid size")
        return name, torch.frombuffer(bytearray(self._take(size)), dtype=DTYPES[kind]).view(shape)
