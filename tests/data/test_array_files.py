"""Arrays and texts written piece by piece are read back unchanged."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy
from numpy.typing import NDArray

from nmt_cli.data.array_files import ArrayWriter, OffsetsWriter, TextReader, TextWriter, mapped_array


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.int64])
@pytest.mark.parametrize("length", [0, 1, 10**6])
def test_an_array_written_in_pieces_equals_the_file_of_numpy(
    tmp_path: Path, length: int, dtype: type[np.integer]
) -> None:
    array: NDArray[np.integer] = np.random.default_rng(1).integers(0, 60_000, length).astype(dtype)
    with ArrayWriter(tmp_path / "ours.npy", dtype) as writer:
        for piece in np.array_split(array, [1, 1, 70_000]):
            writer.append(piece)
    np.save(tmp_path / "theirs.npy", array)
    assert writer.length == length
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()


@pytest.mark.parametrize("shape", [(0,), (7,), (3, 4), ()])
@pytest.mark.parametrize("dtype", ["u2", "<i8", ">i4", "f4", "?"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_a_mapped_array_is_the_one_that_numpy_reads(
    tmp_path: Path, shape: tuple[int, ...], dtype: str, version: tuple[int, int]
) -> None:
    array = np.random.default_rng(1).integers(0, 200, shape).astype(dtype)
    with (tmp_path / "a.npy").open("wb") as file:
        npy.write_array(file, array, version)
    read = mapped_array(tmp_path / "a.npy")
    assert (read.dtype, read.shape, read.tolist()) == (array.dtype, array.shape, array.tolist())
    with pytest.raises(ValueError, match="read-only"):
        read[...] = 1


@pytest.mark.parametrize(
    "array",
    [
        np.array([{"code": "runs"}], object),
        np.zeros(3, [("a", "u1"), ("b", "f4")]),
        np.asfortranarray(np.zeros((2, 3))),
    ],
    ids=["pickle", "fields", "columns first"],
)
def test_arrays_that_are_not_plain_are_refused(tmp_path: Path, array: NDArray[np.generic]) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ValueError):
        mapped_array(tmp_path / "a.npy")


def test_a_shortened_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(1000))
    content = (tmp_path / "a.npy").read_bytes()
    for length in range(0, len(content), 100):
        (tmp_path / "a.npy").write_bytes(content[:length])
        with pytest.raises(ValueError):
            mapped_array(tmp_path / "a.npy")


def test_pieces_of_another_type_are_written_in_the_type_of_the_file(tmp_path: Path) -> None:
    with ArrayWriter(tmp_path / "a.npy", np.uint16) as writer:
        writer.append(np.array([1, 65_535], np.int64)[::-1])
    read = np.load(tmp_path / "a.npy")
    assert read.dtype == np.uint16
    assert read.tolist() == [65_535, 1]


def test_offsets_begin_with_zero_and_end_with_the_sum(tmp_path: Path) -> None:
    with OffsetsWriter(tmp_path / "offsets.npy") as writer:
        for lengths in ([3, 0], [], [2]):
            writer.append(np.array(lengths, np.int64))
    assert np.load(tmp_path / "offsets.npy").tolist() == [0, 3, 3, 5]


@settings(max_examples=15)
@given(st.lists(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=9))))
def test_every_line_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[list[str]]
) -> None:
    folder = tmp_path_factory.mktemp("text")
    with TextWriter(folder / "text") as writer:
        for block in blocks:
            ended = [f"{line}\n".encode() for line in block]
            writer.append(b"".join(ended), np.array([len(line) for line in ended], np.int64))
    lines = [line for block in blocks for line in block]
    with TextReader(folder / "text") as reader:
        assert len(reader) == len(lines)
        assert reader.lines(np.arange(len(lines))) == lines
        middle, end = len(lines) // 2, len(lines)
        assert reader.content(middle, end).decode() == "".join(f"{line}\n" for line in lines[middle:])
        assert reader.lengths(0, middle).tolist() == [len(line.encode()) + 1 for line in lines[:middle]]
        path, first, last = reader.extent(middle, end)
        assert path.read_bytes()[first:last] == reader.content(middle, end)


def test_scattered_lines_are_read_by_number(tmp_path: Path) -> None:
    lines = [str(number) * (number % 3) for number in range(50_000)]
    with TextWriter(tmp_path / "text") as writer:
        lengths = np.array([len(line) + 1 for line in lines], np.int64)
        writer.append("".join(f"{line}\n" for line in lines).encode(), lengths)
    numbers = np.flatnonzero(np.random.default_rng(1).random(len(lines)) < 0.2)
    with TextReader(tmp_path / "text") as reader:
        assert reader.lines(numbers) == [lines[number] for number in numbers]
