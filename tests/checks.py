"""Checks that many tests share: errors of one line, and tensors that are equal bit by bit."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pytest

from nmt_cli.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


def refusal(action: Callable[..., object], *arguments: object, **keywords: object) -> str:
    """Call `action` with the arguments, and return the message of its `UserError`, which must be one line."""
    with pytest.raises(UserError) as caught:
        action(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def differing(one: "Mapping[str, Tensor]", other: "Mapping[str, Tensor]") -> set[str]:
    """Return the names of tensors that are not equal bit by bit in both, or that only one of them has."""
    import torch  # takes seconds, and most tests of errors do not need it

    shared = one.keys() & other.keys()
    return (one.keys() ^ other.keys()) | {name for name in shared if not torch.equal(one[name], other[name])}
