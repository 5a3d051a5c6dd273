"""The fuzzed readers read the contents they start from, and the summary has the numbers of libFuzzer."""

from pathlib import Path

import pytest

from nmt_cli.errors import UserError
from recipes.torture.fuzz import READERS, SUFFIXES, summary


@pytest.mark.parametrize("name", READERS)
def test_a_fuzzed_reader_reads_its_first_inputs_and_refuses_random_bytes(tmp_path: Path, name: str) -> None:
    read, seeds = READERS[name]()
    for number, content in enumerate(seeds):
        path = tmp_path / f"{number}{SUFFIXES.get(name, '')}"
        path.write_bytes(content)
        read(path)
    for content in (b"", b"\xff\x00", b"{" * 1000):
        path.write_bytes(content)
        try:
            read(path)
        except (UserError, OSError) as error:
            assert "\n" not in str(error)


def test_the_summary_has_the_numbers_of_libfuzzer() -> None:
    output = "#2 INITED cov: 30 ft: 31\n#9 NEW cov: 38 ft: 40\nstat::number_of_executed_units: 2251\n"
    assert summary(output + "stat::average_exec_per_sec:     140\n") == (2251, 140, 38)
    assert summary("killed") == (0, 0, 0)
