"""Two folders exchange their names in one call."""

from pathlib import Path

import pytest

from nmt_cli.runtime.exchange import exchanged


def test_two_folders_exchange_names_or_stay_unchanged(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    done = exchanged(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one" / ("other" if done else "one")).exists()
    assert (tmp_path / "other" / ("one" if done else "other")).exists()


@pytest.mark.parametrize("missing", ["one", "other"])
def test_if_a_folder_is_missing_nothing_changes(tmp_path: Path, missing: str) -> None:
    there = {"one": "other", "other": "one"}[missing]
    (tmp_path / there).mkdir()
    assert not exchanged(tmp_path / "one", tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == [there]


def test_a_c_library_without_the_call_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert not exchanged(tmp_path / "one", tmp_path / "other")
