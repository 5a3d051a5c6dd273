"""The fuzzed readers: each reads what it begins with, and libFuzzer's figures are found in what it tells."""

from pathlib import Path

import pytest

from nmt_cli.errors import UserError
from recipes.torture.fuzz import READERS, SUFFIXES, summary


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_what_fuzzing_begins_with_and_refuses_rubbish(tmp_path: Path, name: str) -> None:
    read, seeds = READERS[name]()
    for number, content in enumerate(seeds):
        path = tmp_path / f"{number}{SUFFIXES.get(name, '')}"
        path.write_bytes(content)
        read(path)
    for rubbish in (b"", b"\xff\x00", b"{" * 1000):
        path.write_bytes(rubbish)
        try:
            read(path)
        except (UserError, OSError) as error:
            assert "\n" not in str(error)


def test_figures_are_found_in_what_libfuzzer_tells() -> None:
    told = "#2 INITED cov: 30 ft: 31\n#9 NEW cov: 38 ft: 40\nstat::number_of_executed_units: 2251\n"
    assert summary(told + "stat::average_exec_per_sec:     140\n") == (2251, 140, 38)
    assert summary("killed") == (0, 0, 0)
