"""Languages and their regions."""

import pytest

from nmt_cli.language import fits, without_region


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


@pytest.mark.parametrize(
    ("marked", "lang", "holds"),
    [
        ("de", "de", True),
        ("DE_de", "de", True),
        ("deu", "de", True),
        ("de", "deu", True),
        ("de", "de-AT", True),
        ("deu-at", "de-AT", True),
        ("de-DE", "de-AT", False),
        ("den", "de", False),
        ("", "de", False),
    ],
)
def test_a_text_may_be_marked_in_several_ways(marked: str, lang: str, holds: bool) -> None:
    assert fits(marked, lang) == holds
