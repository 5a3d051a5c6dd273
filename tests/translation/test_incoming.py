"""Lines from bytes as they arrive."""

import io
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.translation.incoming import lines_of


def arriving(*chunks: bytes) -> Callable[[int], bytes]:
    """Return a reader of one chunk per call."""
    left = iter(chunks)
    return lambda size: next(left, b"")


def refuse(number: int) -> None:
    raise AssertionError(f"line {number} is too long")


ODD = st.sampled_from(
    [
        *(text.encode() for text in [*"\n\r\v\f\x1c\x85\u2028\u2029\0\t ", "\r\n", "a. B", "ä日本😀"]),
        *(b"\x85", b"\xff", b"\xef\xbb\xbf", b"\xef\xbb", b"\xbf"),
    ]
)
BYTES = st.lists(st.one_of(ODD, st.binary(max_size=4)), max_size=40).map(b"".join)


def in_small_chunks(data: bytes, sizes: Sequence[int]) -> Callable[[int], bytes]:
    """Return a reader of few bytes at a time, as from a pipe."""
    file, left = io.BytesIO(data), iter(sizes)
    return lambda size: file.read(min(size, next(left, size)))


@given(data=BYTES, sizes=st.lists(st.integers(1, 9), max_size=30))
@settings(max_examples=200)
def test_only_line_feeds_end_lines_and_a_byte_order_mark_is_dropped(data: bytes, sizes: list[int]) -> None:
    without_mark = data.removeprefix(b"\xef\xbb\xbf")
    expected = without_mark.split(b"\n")
    if data.endswith(b"\n") or not data:
        expected.pop()
    assert list(lines_of(in_small_chunks(data, sizes), refuse)) == expected


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
