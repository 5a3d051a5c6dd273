"""Checks of the arguments that a program passes to the library."""

from collections.abc import Iterable, Sequence
from operator import index
from os import PathLike
from typing import TYPE_CHECKING, SupportsIndex, TypeAlias

from nmt_cli.errors import UserError, shortened

if TYPE_CHECKING:  # PyTorch takes seconds to load
    import torch

Anywhere = str | PathLike[str]
"""A path."""

Device: TypeAlias = "str | torch.device"
"""A device as PyTorch names it, or "auto"."""

Pair = tuple[str, str]
"""A raw source text and its translation."""


def checked_lines(lines: Iterable[str]) -> Iterable[str]:
    """Return `lines`. Raise `TypeError` for a text or bytes, and for a list with an item that is no text."""
    if isinstance(lines, str | bytes):
        raise TypeError("lines must be a list of texts (got one text). Use [text] or translate_text.")
    if isinstance(lines, Sequence) and (wrong := [line for line in lines if not isinstance(line, str)]):
        raise TypeError(f"each line must be a text (got {shortened(repr(wrong[0]))}).")
    return lines


def checked_pairs(pairs: Iterable[Pair]) -> list[Pair]:
    """Return `pairs` as a list. Raise `TypeError` unless each is a tuple or list of two texts."""
    listed = list(pairs)
    for pair in listed:
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not is_pair or not all(isinstance(text, str) for text in pair):
            raise TypeError(f"each pair must be a source and its translation (got {shortened(repr(pair))}).")
    return listed


def check_counts(**counts: object) -> None:
    """Raise `UserError` for a count, by name of its argument, that is not None and no whole number from 1."""
    for name, count in counts.items():
        # NumPy's whole numbers are welcome, too.
        number = index(count) if isinstance(count, SupportsIndex) and not isinstance(count, bool) else 0
        if count is not None and number < 1:
            raise UserError(f"{name} must be a whole number, at least 1 (got {shortened(repr(count))}).")
