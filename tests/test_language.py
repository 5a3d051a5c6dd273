"""Languages and their regions."""

import pytest

from nmt_cli.language import without_region


@pytest.mark.parametrize(
    ("written", "language"),
    [
        ("de", "de"),
        ("DE", "de"),
        ("de-AT", "de"),
        ("zh_CN", "zh"),
        ("zh-Hans-CN", "zh"),
        ("yue", "yue"),
        ("", ""),
    ],
)
def test_a_language_is_the_same_in_every_region_and_case(written: str, language: str) -> None:
    assert without_region(written) == language
