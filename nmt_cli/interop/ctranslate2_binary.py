"""Read `model.bin`, CTranslate2's file of weights. A file never makes the reader allocate more than its size,
but weights of fewer bits become fp32."""

import struct
from collections.abc import Mapping
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

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
    """Return the content of a `model.bin`. Raise `UserError` for a missing file, another version, a damaged
    file, or weights of 4 bits."""
    refuse_special(path)
    try:
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            return _read(content, path)
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing. Copy the whole folder again.") from error
    # `mmap` raises it too, for an empty file.
    except ValueError as error:
        raise UserError(f"{path} is damaged or not of CTranslate2 ({error}). Copy it again.") from error


def _read(content: mmap, path: Path) -> Binary:
    """Return the content of a `model.bin`. Raise `ValueError` if it is damaged."""
    version = _integer(content, "I")
    if version not in VERSIONS:
        raise UserError(f"{path} has version {version}, but nmt reads {VERSIONS[0]} to {VERSIONS[-1]}.")
    specification, revision = _text(content), _integer(content, "I")
    variables = dict(_variable(content) for _ in range(_integer(content, "I")))
    aliases = [(_text(content), _text(content)) for _ in range(_integer(content, "I"))]
    tensors = _dequantized(variables, path)
    for alias, name in aliases:
        if name in tensors:
            tensors[alias] = tensors[name]
        elif name not in variables:  # scales of quantised weights are in `variables` only
            raise ValueError(f"{alias} repeats {name}, which is missing")
    return Binary(version, specification, revision, tensors)


def _take(content: mmap, count: int) -> bytes:
    """Return the next `count` bytes. Raise `ValueError`, without allocating them, if there are fewer."""
    if count > len(content) - content.tell():
        raise ValueError("it ends too early")
    return content.read(count)


def _integer(content: mmap, kind: str) -> int:
    """Return the next integer. `kind` is its code in `struct`."""
    return int(struct.unpack(f"<{kind}", _take(content, struct.calcsize(f"<{kind}")))[0])


def _text(content: mmap) -> str:
    """Return the next text, which is stored after its length, with a zero byte at its end."""
    return _take(content, _integer(content, "H")).decode().rstrip("\0")


def _variable(content: mmap) -> tuple[str, Tensor]:
    """Return the name and the value of the next variable. Raise `ValueError` if it is empty."""
    name = _text(content)
    shape = [_integer(content, "I") for _ in range(_integer(content, "B"))]
    kind, size = _integer(content, "B"), _integer(content, "I")
    valid = len(shape) <= MAX_AXES and kind < len(DTYPES) and size > 0
    if not valid or prod(shape) * DTYPES[kind].itemsize != size:
        raise ValueError(f"{name[:80]!r} has an invalid size")
    # PyTorch warns of memory that it must not write, as that of bytes.
    return name, torch.frombuffer(bytearray(_take(content, size)), dtype=DTYPES[kind]).view(shape)


def _dequantized(variables: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Return `variables` with each weight as fp32 in place of its integers and their scales.

    int8 has one scale per row, and int16 a single one. Raise `UserError` for a weight of 4 bits, and
    `ValueError` for a missing or invalid scale.
    """
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
            raise ValueError(f"{name} has no valid scale")
        tensors[name] = tensor.float() / scale.float().view(-1, *[1] * (tensor.dim() - 1))
    return tensors
