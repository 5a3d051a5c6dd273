"""Checks that many tests share: errors of one line, and tensors that are equal bit by bit."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from nmt_cli.errors import UserError


def refusal(action: Callable[..., object], *arguments: object, **keywords: object) -> str:
    """Call `action` with the arguments, and return the message of its `UserError`, which must be one line."""
    with pytest.raises(UserError) as caught:
        action(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def differing(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> set[str]:
    """Return the names of tensors that are not equal bit by bit in both, or that only one of them has."""
    shared = one.keys() & other.keys()
    return (one.keys() ^ other.keys()) | {name for name in shared if not torch.equal(one[name], other[name])}
