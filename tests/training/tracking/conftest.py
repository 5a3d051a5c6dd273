"""Fixtures of the tracking tests: a list of events, and the path of a log."""

from pathlib import Path

import pytest

from nmt_cli.training.tracking.events import Event


@pytest.fixture
def events() -> list[Event]:
    """Return a list to which a test adds events."""
    return []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a log."""
    return tmp_path / "log.jsonl"
