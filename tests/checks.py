"""Checks that many tests share: errors of one line, and bit-identical tensors."""

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
    return caught.value.message  # as the command line shows it


def differing(first: "Mapping[str, Tensor]", second: "Mapping[str, Tensor]") -> set[str]:
    """Return the names of tensors that are not bit-identical in both mappings, or are in only one."""
    import torch  # takes seconds, and most tests of errors do not need it

    shared = first.keys() & second.keys()
    unequal = {name for name in shared if not torch.equal(first[name], second[name])}
    return (first.keys() ^ second.keys()) | unequal
