"""Lines from bytes as they arrive."""

from collections.abc import Callable

import pytest

from nmt_cli.translation.incoming import lines_of


def arriving(*chunks: bytes) -> Callable[[int], bytes]:
    """Return a reader of one chunk per call."""
    left = iter(chunks)
    return lambda size: next(left, b"")


def refuse(number: int) -> None:
    raise AssertionError(f"line {number} is too long")


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
def test_only_line_feeds_end_lines_and_a_byte_order_mark_is_dropped(
    chunks: list[bytes], lines: list[bytes]
) -> None:
    assert list(lines_of(arriving(*chunks), refuse)) == lines


@pytest.mark.parametrize("end", [[], [b"\n"], [b"d\n"], [b"dd", b"d\ne"]])
def test_a_too_long_line_is_reported_once_and_empty(end: list[bytes]) -> None:
    reported: list[int] = []
    chunks = [b"\xef\xbb\xbfa\nbcd\nab", b"c", b"d", *end]
    lines = list(lines_of(arriving(*chunks), reported.append, longest=3 + 1))
    long = [b"abcd"] if end in ([], [b"\n"]) else [b""]
    assert lines == [b"a", b"bcd", *long, *([b"e"] if len(end) > 1 else [])]
    assert reported == ([] if long[0] else [3])
    with pytest.raises(AssertionError, match="line 1"):
        list(lines_of(arriving(b"abcd" * 9), refuse, longest=9))


def test_a_line_is_yielded_before_the_next_one_is_read() -> None:
    sizes: list[int] = []
    chunks = iter([b"one\n", b"two\n"])

    def read(size: int) -> bytes:
        sizes.append(size)
        return next(chunks, b"")

    lines = lines_of(read, refuse)
    assert next(lines) == b"one"
    assert len(sizes) == 1
