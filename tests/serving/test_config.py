"""The settings of the server."""

import pytest

from nmt_cli.config import read
from nmt_cli.errors import UserError
from nmt_cli.serving.config import ServeConfig


def test_removed_limits_are_read_at_their_old_defaults_only() -> None:
    old = ["server.most_texts=1000", "server.most_alternatives=5"]
    assert read(ServeConfig, assignments=old) == ServeConfig()
    with pytest.raises(UserError, match="a request takes up to 1,000 texts"):
        read(ServeConfig, assignments=["server.most_texts=2000"])
