"""Text from outside is printed on one line and cannot control the terminal."""

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
def test_characters_that_a_terminal_obeys_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert len(printable(text).splitlines()) == 1
    printable(text).encode()
