"""Zip archives with a file per language are read like these files, and hostile archives are refused."""

import stat
import zipfile
from pathlib import Path

import pytest

from nmt_cli.corpus.parallel import find
from tests.checks import refusal
from tests.corpus.conftest import pairs

FILES = {"Europarl.de-en.de": "eins\r\nzwei ü\n", "Europarl.de-en.en": "one\ntwo\n", "README": "words"}


def archive(path: Path, files: dict[str, str], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_both_files_are_read_without_unpacking(tmp_path: Path, method: int) -> None:
    path = archive(tmp_path / "de-en.txt.zip", FILES, method)
    corpus = find(str(path), "en", "de")
    assert (corpus.name, corpus.count(), corpus.files) == ("de-en.txt", 2, (path,))
    assert pairs(corpus) == pairs(corpus, 1) == [(b"one", b"eins"), (b"two", "zwei ü".encode())]
    assert list(tmp_path.iterdir()) == [path]


def test_regions_and_three_letter_codes_match_the_language(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", {"x.pt_br": "um\n", "x.eng": "one\n", "x.engine": "?"})
    assert pairs(find(str(path), "en", "pt")) == [(b"one", b"um")]


def complaint(path: Path) -> str:
    message = refusal(find(str(path), "en", "de").count)
    assert str(path) in message
    return message


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"a.en": "x\n"}, "one file that ends in .de, but has none"),
        ({"a.en": "x\n", "b.en": "x\n", "a.de": "y\n"}, "a.en, b.en"),
        ({"a.en": "x\nx\n", "a.de": "y\n"}, "a.de has 1: they must match line for line"),
        ({"a.en": "", "a.de": ""}, "is empty"),
        ({"../a.en": "x\n", "a.de": "y\n"}, "points outside"),
        ({"/a.en": "x\n", "a.de": "y\n"}, "points outside"),
        ({"a.en": "x\n" * 5_000_000, "a.de": "y\n"}, "would grow from"),
    ],
)
def test_an_archive_that_is_not_a_corpus_is_an_error(tmp_path: Path, files: dict[str, str], why: str) -> None:
    assert why in complaint(archive(tmp_path / "a.zip", files))


def test_a_link_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", {"a.de": "y\n"})
    link = zipfile.ZipInfo("a.en")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(link, "/etc/passwd")
    assert "is a link" in complaint(path)


def _changed(path: Path, marker: bytes, offset: int, value: bytes) -> Path:
    """Overwrite bytes of the archive, `offset` after the first `marker`."""
    content = bytearray(path.read_bytes())
    position = content.index(marker) + offset
    content[position : position + len(value)] = value
    path.write_bytes(content)
    return path


CENTRAL = b"PK\x01\x02"


@pytest.mark.parametrize(
    ("marker", "offset", "value", "why"),
    [
        (CENTRAL, 8, b"\x01\x00", "is encrypted"),
        (CENTRAL, 10, b"\x63\x00", "damaged, or not a zip archive"),
        (CENTRAL, 24, b"\x03\x00\x00\x00", "damaged, or not a zip archive"),
        (CENTRAL, 16, b"\x00\x00\x00\x00", "damaged, or not a zip archive"),
        (b"PK\x05\x06", 0, b"XXXX", "damaged, or not a zip archive"),
    ],
    ids=["encrypted", "method", "size", "checksum", "cut"],
)
def test_a_forged_archive_is_an_error(
    tmp_path: Path, marker: bytes, offset: int, value: bytes, why: str
) -> None:
    path = archive(tmp_path / "a.zip", {"a.en": "words\n", "a.de": "y\n"})
    assert why in complaint(_changed(path, marker, offset, value))
