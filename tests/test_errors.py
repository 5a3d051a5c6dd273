"""Texts from outside are shown on one line, and do nothing to the terminal."""

import pytest

from nmt_cli.errors import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain Äö 日本", "plain Äö 日本"),
        ("two\nlines\r", "two\\x0alines\\x0d"),
        ("\x1b[31mred\x9b", "\\x1b[31mred\\x9b"),
        ("\u202etxt.exe\u2069", "\\u202etxt.exe\\u2069"),
        ("caf\udce9", "caf\\udce9"),
        ("a\u2028b", "a\\u2028b"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_instead(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert len(printable(text).splitlines()) == 1
    printable(text).encode()
