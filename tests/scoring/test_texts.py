"""Reading hypotheses and references from files of every kind. No line is lost or moved."""

import gzip
import io
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from nmt_cli.errors import UserError
from nmt_cli.scoring.texts import STDIN, Text, language_of, read_hypotheses, read_reference, refuse_unequal

SGM = """<{kind} setid="newstest"><doc docid="a" sysid="s"><p>
<seg id="1">Tom &amp; J.</seg><seg id="2"></seg></p></doc>
<doc docid="b"><seg id="1">drei</seg></doc></{kind}>"""

XML = b"""<dataset id="t"><doc id="a"><src lang="en"><seg id="1">one</seg></src>
<ref lang="fr"><seg id="1">un</seg></ref><ref lang="de"><seg id="1">eins</seg></ref></doc></dataset>"""


def lines_of(content: bytes, path: Path) -> list[str]:
    path.write_bytes(content)
    return list(read_hypotheses(path).lines)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"\n\n", ["", ""]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a  \n b\t\n", ["a", " b"]),
        ("a\u2028b\x0bc\x85d\x1ee\rf\n".encode(), ["a\u2028b\x0bc\x85d\x1ee\rf"]),
        (b"", []),
    ],
)
def test_a_line_ends_at_a_line_feed_only_and_an_empty_one_counts(
    tmp_path: Path, content: bytes, lines: list[str]
) -> None:
    assert lines_of(content, tmp_path / "hyp") == lines
    assert lines_of(gzip.compress(content), tmp_path / "hyp.gz") == lines


def test_invalid_utf8_is_replaced_and_its_lines_are_counted(tmp_path: Path) -> None:
    (tmp_path / "hyp").write_bytes(b"gut\ns\xe4\n\xff\xfe!\n" + "ö\ufffd\n".encode())
    text = read_hypotheses(tmp_path / "hyp")
    assert list(text.lines) == ["gut", "s\ufffd", "\ufffd\ufffd!", "ö\ufffd"]
    assert text.invalid == 2


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
def test_an_sgm_file_gives_its_segments_in_order(tmp_path: Path, compressed: bool) -> None:
    for kind, read in (("tstset", read_hypotheses), ("refset", lambda path: read_reference(path, "de"))):
        content = SGM.format(kind=kind).encode()
        path = tmp_path / f"{kind}.sgm{'.gz' * compressed}"
        path.write_bytes(gzip.compress(content) if compressed else content)
        assert list(read(path).lines) == ["Tom & J.", "", "drei"]


def test_an_xml_file_gives_the_reference_in_the_language_and_the_output_of_a_system(tmp_path: Path) -> None:
    path = tmp_path / "set.xml"
    path.write_bytes(XML)
    assert list(read_reference(path, "de").lines) == ["eins"]
    assert list(read_reference(path, "fr").lines) == ["un"]
    with pytest.raises(UserError, match="of the hypothesis side"):
        read_hypotheses(path)
    output = b'</src><hyp system="x" language="de"><seg id="1">zwei</seg></hyp>'
    path.write_bytes(XML.replace(b"</src>", output, 1))
    assert list(read_hypotheses(path).lines) == ["zwei"]


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((2, 3), r"^h has 2 lines, r has 3: they must match line for line\.$"),
        ((0, 0), "r is empty"),
    ],
)
def test_texts_that_do_not_match_line_for_line_are_refused(counts: tuple[int, int], message: str) -> None:
    hypotheses, reference = (Text(name, ["x"] * n, 0) for name, n in zip("hr", counts, strict=True))
    with pytest.raises(UserError, match=message):
        refuse_unequal(hypotheses, reference)


@pytest.mark.parametrize(
    ("names", "language"),
    [
        (["newstest.de"], "de"),
        (["ref.de.gz"], "de"),
        (["newstest2014-ende-ref.de.sgm"], "de"),
        (["newstest2014-ende-ref.de.sgm.gz"], "de"),
        (["a/ref1.de", "b/ref2.de.xz"], "de"),
        (["ref.de", "gold.txt"], "de"),
        (["ref.de-AT"], "de"),
        (["ref.deu"], "de"),
        (["ref.DE_at.gz"], "de"),
        (["a.de-AT", "b.de"], "de"),
        (["ref.en-de"], ""),
        (["ref.de", "ref.en"], ""),
        (["ref.txt"], ""),
        (["de"], ""),
        (["ref.de/gold"], ""),
    ],
)
def test_the_language_is_the_common_ending_of_the_references(names: list[str], language: str) -> None:
    assert language_of([Path(name) for name in names], frozenset({"de", "en"})) == language


def test_compressed_stdin_is_read_like_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    content = gzip.compress("ä\n\nb".encode())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    text = read_hypotheses(STDIN)
    for _ in range(2):  # from a copy that exists as long as the text
        assert (text.name, [*text.lines]) == ("stdin", ["ä", "", "b"])


def test_an_error_in_stdin_names_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"\xff\xfea\x00")))
    with pytest.raises(UserError, match=r"^stdin is UTF-16"):
        read_hypotheses(STDIN)


def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a\nb\n",))
    writer.start()
    text = read_reference(pipe, "")
    writer.join()
    assert (text.name, [*text.lines]) == (str(pipe), ["a", "b"])


def test_a_file_that_changes_while_it_is_scored_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "hyp"
    path.write_text("a\nb\n")
    text = read_hypotheses(path)
    path.write_text("a\n")
    with pytest.raises(UserError, match=r"hyp was changed while it was read. Run it again"):
        list(text.lines)
