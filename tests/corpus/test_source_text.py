"""Translations are written in the format of their source, or of the name of the output."""

from pathlib import Path

import pytest

from nmt_cli.corpus import sgm
from nmt_cli.corpus.source_text import Columns, Lines, first_columns, form_of, kind_of

LANGUAGES = ("en", "de")
SEGMENTS = [sgm.Segment(b"a&b", b"1", b"x"), sgm.Segment(b"a&b", b"2", b"y"), sgm.Segment(b"c", b"1", b"z")]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.txt", "lines"),
        ("a.tsv", "tsv"),
        ("a.TSV.gz", "tsv"),
        ("a.sgm", "sgm"),
        ("a.sgml.gz", "sgm"),
        ("a.xml", "xml"),
        ("a.xml.b.txt", "lines"),
    ],
)
def test_the_format_follows_from_the_endings_of_the_name(name: str, kind: str) -> None:
    assert kind_of(Path(name)) == kind
    assert kind_of(None) == "lines"


def refuse(warning: str) -> None:
    raise AssertionError(warning)


def test_a_tab_in_a_translation_does_not_add_a_column(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"one\tignored\ntwo\n")
    assert list(first_columns(tmp_path / "a.tsv")) == [b"one", b"two"]
    form = form_of(tmp_path / "a.tsv", None, (), LANGUAGES, refuse)
    assert form == Columns() and form.line(1, "one", "e\tins") == b"one\te ins\n"


def test_the_names_of_both_files_decide_about_columns() -> None:
    assert form_of(Path("a.tsv"), Path("b.tsv"), (), LANGUAGES, refuse) == Columns()
    assert form_of(Path("a.tsv"), Path("b.txt"), (), LANGUAGES, refuse) == Lines()
    assert form_of(None, None, (), LANGUAGES, refuse).line(1, "one", "eins") == b"eins\n"


@pytest.mark.parametrize(("source", "target"), [("a.xml", None), ("a.sgm", "b.xml"), ("a.sgm", "b.sgm")])
def test_a_written_test_set_can_be_read(tmp_path: Path, source: str, target: str | None) -> None:
    (tmp_path / source).write_bytes(b'<srcset setid="t" srclang="any">')
    form = form_of(tmp_path / source, Path(target) if target else None, SEGMENTS, LANGUAGES, refuse)
    texts = ["ei<ns", "zw&ei", 'drei\'s "Haus"']
    lines = [form.line(number, "", text) for number, text in enumerate(texts, start=1)]
    assert b"drei's &quot;Haus&quot;" in lines[2]  # mteval-v13a.pl does not decode an apostrophe
    path = tmp_path / (target or source)
    path.write_bytes(form.begin + b"".join(lines) + form.end)
    written = sgm.segments(path, "hypothesis")
    assert [(segment.document, segment.number) for segment in written] == [
        (segment.document, segment.number) for segment in SEGMENTS
    ]
    assert [segment.text.decode() for segment in written] == texts


@pytest.mark.parametrize(
    ("target", "head", "begin", "lacking"),
    [
        ("a.sgm", '<SrcSet SetID="x&amp;y" SrcLang=any>', '<tstset setid="x&amp;y" srclang="any" ', []),
        ("a.sgm", "<srcset setid='x'>", '<tstset setid="x" srclang="en" ', ["srclang, so the output has en"]),
        ("a.sgm", '<dataset id="x">', '<tstset setid="x" srclang="en" ', ["srclang, so the output has en"]),
        ("a.sgm", "<doc>", '<tstset setid="set" srclang="en" ', ["setid, so the output has set", "srclang"]),
        ("a.xml", '<srcset setid="x">', '<?xml version="1.0" encoding="utf-8"?>\n<dataset id="x">', []),
        ("a.xml", "<dataset>", '<?xml version="1.0" encoding="utf-8"?>\n<dataset id="set">', ["dataset id"]),
    ],
)
def test_a_test_set_keeps_the_attributes_that_scorers_compare(
    tmp_path: Path, target: str, head: str, begin: str, lacking: list[str]
) -> None:
    (tmp_path / "set.en.sgm").write_text(head)
    warnings: list[str] = []
    form = form_of(tmp_path / "set.en.sgm", Path(target), SEGMENTS, LANGUAGES, warnings.append)
    assert form.begin.decode().startswith(begin)
    assert len(warnings) == len(lacking)
    for warning, what in zip(warnings, lacking, strict=True):
        assert f"set.en.sgm has no {what}" in warning
