"""Lines come as soon as they are whole, whatever pieces their bytes arrive in."""

from collections.abc import Callable

import pytest

from nmt_cli.decoding.lines.incoming import lines_of


def arriving(*chunks: bytes) -> Callable[[int], bytes]:
    """Gives one chunk at a call, and then the end."""
    left = iter(chunks)
    return lambda most: next(left, b"")


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([], []),
        ([b"ab\n"], [b"ab"]),
        ([b"a", b"b", b"\nc"], [b"ab", b"c"]),
        ([b"a\n\n", b"b\n"], [b"a", b"", b"b"]),
        ([b"\xef\xbb", b"\xbfa\n\xef\xbb\xbfb"], [b"a", b"\xef\xbb\xbfb"]),
        ([b"\xef\xbb\xbf"], [b""]),
        ([b"a\rb\x0bc\n"], [b"a\rb\x0bc"]),
    ],
)
def test_only_line_feeds_end_lines_and_a_mark_is_dropped_at_the_start(
    chunks: list[bytes], lines: list[bytes]
) -> None:
    assert list(lines_of(arriving(*chunks))) == lines


def test_a_line_is_given_before_the_next_one_is_asked_for() -> None:
    asked: list[int] = []
    chunks = iter([b"one\n", b"two\n"])

    def read(most: int) -> bytes:
        asked.append(most)
        return next(chunks, b"")

    lines = lines_of(read)
    assert next(lines) == b"one"
    assert len(asked) == 1
