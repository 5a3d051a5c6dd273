"""The run folder holds one run at a time."""

from pathlib import Path

import pytest

from nmt_cli.errors import UserError
from nmt_cli.training.setup.folder import claimed, newest_checkpoint


def test_a_second_run_is_kept_out_until_the_first_has_ended(run: Path) -> None:
    with claimed(run):
        for _ in range(2):
            with pytest.raises(UserError, match="another process is training in"), claimed(run):
                pass
    with claimed(run):
        assert newest_checkpoint(run) is None
