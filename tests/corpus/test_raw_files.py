"""Raw files are read plain or compressed, and errors in them are reported."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from nmt_cli.corpus import raw_files
from nmt_cli.corpus.raw_files import blocks, count_lines, decoded, lines, open_bytes, sha256
from nmt_cli.errors import UserError
from tests.checks import refusal

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Pack = Callable[[bytes], bytes]

PACKED: dict[str, Pack] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd.compress,
}
EVERY_PACK: dict[str, Pack] = {"plain": lambda content: content, **PACKED}

NOISE = random.Random(1).randbytes(5000)
"""Incompressible bytes, so that every part of a compressed file matters."""

FRAGMENTS = [
    *(mark.encode() for mark in "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"),
    *(b"\n", b"\r\n", b"\n\r", b"", b"a", b"word ", b"\x00", b"\x85", b"\xff", b"\xef\xbb\xbf"),
]


def written(folder: Path, content: bytes, name: str = "text") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Callable[[bytes], Path]]:
    """Return a function that creates a named pipe and writes bytes into it."""
    writers = []

    def make(content: bytes) -> Path:
        os.mkfifo(path := tmp_path / "pipe")
        writers.append(threading.Thread(target=path.write_bytes, args=(content,)))
        writers[-1].start()
        return path

    yield make
    for writer in writers:
        writer.join()


def expected_lines(content: bytes) -> list[bytes]:
    """Return the lines by simpler rules: split at line feeds, drop the mark and the \\r of \\r\\n."""
    *ended, last = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [line.removesuffix(b"\r") for line in ended] + ([last] if last else [])


def complaint(path: Path, use: Callable[[Path], object] = lambda path: list(lines(path))) -> str:
    message = refusal(use, path)
    assert str(path) in message
    return message


@pytest.mark.parametrize("pack", EVERY_PACK.values(), ids=EVERY_PACK)
def test_a_pipe_is_read_like_a_file(pipe: Callable[[bytes], Path], pack: Pack) -> None:
    assert list(lines(pipe(pack("ein Haus\nzwei Häuser\n".encode())))) == [
        b"ein Haus",
        "zwei Häuser".encode(),
    ]


@pytest.mark.parametrize("name", ["text", "text.gz", "text.bz2", "text.xz", "text.zst"])
@pytest.mark.parametrize("pack", EVERY_PACK.values(), ids=EVERY_PACK)
def test_a_compressed_file_is_recognised_by_its_content(tmp_path: Path, pack: Pack, name: str) -> None:
    path = written(tmp_path, pack("ein Haus\nzwei Häuser\n".encode()), name)
    assert list(lines(path)) == [b"ein Haus", "zwei Häuser".encode()]
    assert count_lines(path) == 2


@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
def test_concatenated_compressed_files_are_read_to_the_end(tmp_path: Path, pack: Pack) -> None:
    path = written(tmp_path, pack(b"one\ntw") + pack(b"o\nthree\n"))
    assert list(lines(path)) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("left", [0.01, 0.5, 0.99, -1], ids=str)
@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
@pytest.mark.parametrize("use", [lambda path: list(lines(path)), count_lines], ids=["lines", "count"])
def test_a_truncated_compressed_file_is_an_error(
    tmp_path: Path, use: Callable[[Path], object], pack: Pack, left: float
) -> None:
    packed = pack(NOISE)
    truncated = packed[:-1] if left < 0 else packed[: int(left * len(packed))]
    assert "cut off" in complaint(written(tmp_path, truncated), use)


@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
def test_a_damaged_compressed_file_is_an_error(tmp_path: Path, pack: Pack) -> None:
    packed = pack(NOISE)
    assert "damaged" in complaint(written(tmp_path, packed[:6] + b"\xff" * 30 + packed[36:]))


@example(content=b"left" + b"right".join(FRAGMENTS) + b"last", size=2)
@example(content=b"\xef\xbb\xbfone\r\n\n\xef\xbb\xbftwo", size=1)
@example(content=b"\xef\xbb\xbf", size=1)
@example(content=b"BZhang\n", size=1)
@given(content=st.lists(st.sampled_from(FRAGMENTS)).map(b"".join) | st.binary(), size=st.integers(1, 4))
def test_only_a_line_feed_ends_a_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, size: int
) -> None:
    assume(
        not content.startswith((b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"))
    )
    folder = tmp_path_factory.getbasetemp()
    for name, pack in EVERY_PACK.items():
        path = written(folder, pack(content), f"property.{name}")
        assert list(lines(path)) == expected_lines(content)
        assert [line for block in blocks(path, size) for line in block] == expected_lines(content)
        assert all(len(block) == size for block in list(blocks(path, size))[:-1])
        assert count_lines(path) == len(expected_lines(content))


def test_a_line_longer_than_a_block_is_not_split(tmp_path: Path) -> None:
    long = b"x" * 2_500_000
    path = written(tmp_path, long + b"\nshort")
    assert list(lines(path)) == [long, b"short"]
    assert count_lines(path) == 2


@pytest.mark.parametrize("use", [lambda path: list(lines(path)), count_lines], ids=["lines", "count"])
@pytest.mark.parametrize("pack", EVERY_PACK.values(), ids=EVERY_PACK)
def test_a_line_above_the_limit_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Pack, use: Callable[[Path], object]
) -> None:
    monkeypatch.setattr(raw_files, "BLOCK", 64)
    monkeypatch.setattr(raw_files, "LONGEST_BYTES", 200)
    for end in ("", "\n", "\nnext\n"):
        use(written(tmp_path, pack(f"first\n{'x' * 200}{end}".encode())))
        path = written(tmp_path, pack(f"first\n{'x' * 201}{end}".encode()))
        assert "line 2: more than 200 bytes, the limit" in complaint(path, use)


def test_a_line_may_have_a_million_characters_of_any_script(tmp_path: Path) -> None:
    assert count_lines(written(tmp_path, ("\U00020000" * 1_000_000).encode())) == 1


class Endless(io.RawIOBase):
    """A stream that repeats the same bytes almost without end."""

    def __init__(self, unit: bytes) -> None:
        self.unit, self.size_read = unit, 0

    def read(self, size: int = -1) -> bytes:
        self.size_read += size
        assert self.size_read < 1 << 29, "the reader does not stop"
        return (self.unit * (size // len(self.unit) + 1))[:size]


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        (b"x", "text line 1: more than 4,000,000 bytes"),
        (b"x" * 99_999 + b"\n", "text lines 1 to 2,5..: more than 268,435,456 bytes"),
    ],
)
def test_an_endless_line_is_an_error_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch, unit: bytes, why: str
) -> None:
    monkeypatch.setattr(raw_files, "open_bytes", lambda path: nullcontext(Endless(unit)))
    with pytest.raises(UserError, match=why):
        next(blocks(Path("text"), 10_000))


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-be"])
@pytest.mark.parametrize("pack", [EVERY_PACK["plain"], gzip.compress], ids=["plain", "gz"])
def test_an_error_about_utf16_names_the_command_that_converts_it(
    tmp_path: Path, pack: Pack, coding: str
) -> None:
    content = "\ufeffHaus\n".encode(coding) if coding.endswith("be") else "Haus\n".encode(coding)
    assert "iconv -f UTF-16 -t UTF-8" in complaint(written(tmp_path, pack(content)))


@pytest.mark.parametrize("use", [lambda path: list(lines(path)), count_lines, sha256])
def test_a_missing_file_and_a_directory_are_different_errors(
    tmp_path: Path, use: Callable[[Path], object]
) -> None:
    for path in (tmp_path / "missing", written(tmp_path, b"a\n") / "inside"):
        assert "does not exist. Check the path." in complaint(path, use)
    assert "is a directory" in complaint(tmp_path, use)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_without_read_permission_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, b"a\n")
    path.chmod(0)
    assert "permission" in complaint(path)


def test_bytes_are_decompressed_and_in_order(tmp_path: Path) -> None:
    with open_bytes(written(tmp_path, gzip.compress(NOISE))) as stream:
        assert stream.read() == NOISE


def test_the_hash_is_that_of_the_compressed_file(tmp_path: Path) -> None:
    packed = gzip.compress(NOISE)
    assert sha256(written(tmp_path, packed)) == hashlib.sha256(packed).hexdigest()


@pytest.mark.parametrize("rule", ["error", "replace", "skip"])
@given(text=st.text())
def test_valid_text_is_the_same_under_every_rule(rule: str, text: str) -> None:
    assert decoded(text.encode(), rule, "f line 1") == text


@pytest.mark.parametrize(
    ("raw", "location", "replaced"),
    [
        (b"caf\xe9 noir", "byte 4 (0xe9)", "caf\ufffd noir"),
        (b"\xff", "byte 1 (0xff)", "\ufffd"),
        (b"ab\xed\xa0\x80", "byte 3 (0xed)", "ab\ufffd\ufffd\ufffd"),
        (b"ab\xc0\xaf", "byte 3 (0xc0)", "ab\ufffd\ufffd"),
        (b"x" * 1500 + b"\xe2\x82", "byte 1,501 (0xe2)", "x" * 1500 + "\ufffd"),
    ],
)
def test_invalid_bytes_are_an_error_or_replaced_or_skipped(raw: bytes, location: str, replaced: str) -> None:
    message = refusal(decoded, raw, "error", "train.de line 7")
    assert message.startswith(f"train.de line 7, {location} is not UTF-8")
    assert "corpus.invalid_utf8=replace" in message
    assert decoded(raw, "replace", "train.de line 7") == replaced
    assert decoded(raw, "skip", "train.de line 7") is None


def test_a_zstd_file_may_begin_with_a_skippable_frame(tmp_path: Path) -> None:
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"
    path = written(tmp_path, (skippable + zstd.compress(b"one\n")) * 2)
    assert list(lines(path)) == [b"one", b"one"]
