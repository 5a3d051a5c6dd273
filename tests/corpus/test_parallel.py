"""Parallel corpora are found by name and read in blocks, and errors in them are reported."""

import gzip
import io
import os
import re
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.corpus import raw_files
from nmt_cli.corpus.parallel import Corpus, PairBlock, find, spool
from tests.checks import refusal
from tests.corpus.conftest import pairs

SGM = '<doc docid="{doc}"><seg id="{number}">{text}</seg></doc>'


def make(folder: Path, **contents: str) -> None:
    """Write files into `folder`: `a_en="x"` writes a.en. A name that ends in _gz is compressed."""
    for name, content in contents.items():
        raw = content.encode()
        path = folder / name.replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)


def corpus_of(folder: Path, spec: str) -> Corpus:
    return find(":".join(str(folder / part) for part in spec.split(":")), "en", "de")


def sgm(*segments: tuple[str, str, str]) -> str:
    return "".join(SGM.format(doc=doc, number=number, text=text) for doc, number, text in segments)


def complaint(corpus: Corpus) -> str:
    return refusal(lambda: (corpus.count(), pairs(corpus)))


LONG = {
    "a.tsv": "one\teins\n{long}\tzwei\n",
    "a.jsonl": '{{"en": "one", "de": "eins"}}\n{{"en": "{long}", "de": "zwei"}}\n',
    "a.xml": "<dataset><doc id='a'><src><seg id='1'>one</seg><seg id='2'>two</seg></src>"
    "<ref><seg id='1'>eins</seg><seg id='2'>{long}</seg></ref></doc></dataset>",
}


@pytest.mark.parametrize(("name", "content"), LONG.items(), ids=LONG)
def test_no_format_can_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str
) -> None:
    monkeypatch.setattr(raw_files, "BLOCK", 64)
    monkeypatch.setattr(raw_files, "LONGEST_BYTES", 200)
    (tmp_path / name).write_text(content.format(long="x" * 150))
    corpus = find(str(tmp_path / name), "en", "de")
    assert corpus.name == "a"
    assert pairs(corpus)[0] == (b"one", b"eins")
    assert len(pairs(corpus)) == corpus.count() == 2
    monkeypatch.setattr(raw_files, "MOST_BYTES_HELD", 155)
    assert re.search(rf"{name} \w+ 1 to 2: more than 155 bytes", complaint(corpus))
    (tmp_path / name).write_text(content.format(long="x" * 201))
    assert re.search(rf"{name} (line|segment) 2: more than 200 bytes", complaint(corpus))


@pytest.mark.parametrize(
    ("files", "spec", "name"),
    [
        (["train_en", "train_de"], "train", "train"),
        (["train_en_gz", "train_de_gz"], "train", "train"),
        (["train_en_gz", "train_de"], "train", "train"),
        (["train_lc_tok_en", "train_lc_tok_de"], "train.lc.tok", "train.lc.tok"),
        (["news_2014_en", "news_2014_de"], "news.2014", "news.2014"),
        (["x_en", "y_de"], "x.en:y.de", "x"),
        (["x_en_gz", "y_de"], "x.en.gz:y.de", "x"),
        (["english", "german"], "english:german", "english"),
    ],
)
def test_two_sides_are_found_and_named_after_their_files(
    tmp_path: Path, files: list[str], spec: str, name: str
) -> None:
    make(tmp_path, **dict(zip(files, ["one\ntwo\n", "eins\nzwei\n"], strict=True)))
    corpus = corpus_of(tmp_path, spec)
    assert corpus.name == name
    assert corpus.count() == 2
    assert pairs(corpus) == [(b"one", b"eins"), (b"two", b"zwei")]


@pytest.mark.parametrize(
    ("files", "spec", "message"),
    [
        ("a_en a_de a_en_gz", "a", "/a.en and {0}/a.en.gz both exist. Name the two files as SOURCE:TARGET"),
        ("a_en a_de a_de_zst", "a", "/a.de and {0}/a.de.zst both exist"),
        ("a_en", "a", "there is no {0}/a.de,"),
        ("a_de", "a", "there is no {0}/a.en,"),
        ("b", "a", "there is no {0}/a.en,"),
        ("x", ".", "a directory: name the files in it"),
        ("corpus_txt", "corpus.txt", "two sides"),
        ("de-en_zip", "de-en.zip", "{0}/de-en.zip is a zip archive. Unpack it, and give its files as"),
        ("a_sgm b_de", "a.sgm:b.de", "Give two of a kind"),
        ("x_en x_de", "x.en:gone.de", "{0}/gone.de does not exist"),
        ("x_en x_de", "gone.en:x.de", "{0}/gone.en does not exist"),
    ],
)
def test_files_that_are_not_a_corpus_are_an_error(
    tmp_path: Path, files: str, spec: str, message: str
) -> None:
    make(tmp_path, **dict.fromkeys(files.split(), "x\n"))
    assert message.format(tmp_path) in refusal(lambda: corpus_of(tmp_path, spec).count())


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("a\nb\nc\n", "x\ny\n", "{0}/p.en has 3 lines, {0}/p.de has 2"),
        ("a\n" * 1234, "x\n", "{0}/p.en has 1,234 lines, {0}/p.de has 1:"),
        ("a\n", "", "{0}/p.en has 1 lines, {0}/p.de has 0"),
        ("", "", "{0}/p.en is empty"),
    ],
)
def test_errors_about_unequal_and_empty_files_name_their_counts(
    tmp_path: Path, source: str, target: str, expected: str
) -> None:
    make(tmp_path, p_en=source, p_de=target)
    assert expected.format(tmp_path) in complaint(corpus_of(tmp_path, "p"))


@given(
    size=st.integers(1, 7),
    expected=st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3)), max_size=20),
)
def test_blocks_contain_every_pair_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, size: int, expected: list[tuple[bytes, bytes]]
) -> None:
    expected = [
        (b"s" + s.replace(b"\n", b"") + b".", b"t" + t.replace(b"\n", b"") + b".") for s, t in expected
    ]
    folder = tmp_path_factory.getbasetemp()
    for side, lang in enumerate(("en", "de")):
        (folder / f"blocks.{lang}").write_bytes(b"".join(pair[side] + b"\n" for pair in expected))
    blocks = list(corpus_of(folder, "blocks").blocks(size))
    assert [block.first for block in blocks] == list(range(1, len(expected) + 1, size))
    assert all(len(block.sources) == size for block in blocks[:-1])
    assert [p for b in blocks for p in zip(b.sources, b.targets, strict=True)] == expected


@pytest.mark.parametrize("name", ["set_tsv", "set_tsv_gz"])
def test_a_tab_separated_file_is_a_corpus(tmp_path: Path, name: str) -> None:
    make(tmp_path, **{name: "one\teins\r\n\tleer\ntwo\t\n"})
    corpus = corpus_of(tmp_path, name.replace("_", "."))
    assert corpus.name == "set"
    assert corpus.files == (tmp_path / name.replace("_", "."),)
    assert corpus.count() == 3
    assert pairs(corpus) == [(b"one", b"eins"), (b"", b"leer"), (b"two", b"")]


@pytest.mark.parametrize(("bad", "columns"), [("a", 1), ("", 1), ("a\tb\tc", 3)])
def test_an_error_about_the_number_of_columns_names_the_line(tmp_path: Path, bad: str, columns: int) -> None:
    make(tmp_path, set_tsv=f"one\teins\n{bad}\n")
    message = complaint(corpus_of(tmp_path, "set.tsv"))
    assert message.startswith(f"{tmp_path}/set.tsv line 2 has {columns} column")
    assert "corpus.source_column" in message


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (("newstest-src.en.sgm", "newstest-ref.de.sgm"), "newstest"),
        (("newstest.en.sgm.gz", "newstest.de.sgm.gz"), "newstest"),
        (("set.en.xml", "set.de.xml"), "set"),
    ],
)
def test_a_wmt_test_set_of_two_files_is_read(tmp_path: Path, files: tuple[str, str], name: str) -> None:
    for file, doc, text in zip(files, ["BBC/News", "bbc/news"], ["one", "eins"], strict=True):
        (tmp_path / file).write_text(sgm((doc, "1", text), (doc, "2", text)))
    corpus = corpus_of(tmp_path, ":".join(files))
    assert corpus.name == name
    assert corpus.count() == 2
    assert pairs(corpus) == [(b"one", b"eins")] * 2
    assert corpus.location("target", 2) == f"{tmp_path / files[1]} segment 2"


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ([("d", "1"), ("d", "2")], [("d", "1")], ["segment 2", "doc d seg 2", "nothing"]),
        ([("d", "1")], [("d", "1"), ("d", "2")], ["segment 2", "nothing", "doc d seg 2"]),
        ([("d", "1"), ("d", "2")], [("d", "1"), ("d", "3")], ["segment 2", "doc d seg 2", "doc d seg 3"]),
        ([("a", "1"), ("b", "1")], [("b", "1"), ("a", "1")], ["segment 1", "doc a seg 1", "doc b seg 1"]),
    ],
)
def test_an_error_about_unequal_test_sets_names_the_first_difference(
    tmp_path: Path, source: list[tuple[str, str]], target: list[tuple[str, str]], expected: list[str]
) -> None:
    make(
        tmp_path,
        s_sgm=sgm(*((*place, "x") for place in source)),
        t_sgm=sgm(*((*place, "x") for place in target)),
    )
    message = complaint(corpus_of(tmp_path, "s.sgm:t.sgm"))
    assert all(part in message for part in [f"{tmp_path}/s.sgm", f"{tmp_path}/t.sgm", *expected])


def test_a_document_without_reference_is_an_error(tmp_path: Path) -> None:
    src = '<src><seg id="1">one</seg></src>'
    ref = '<ref><seg id="1">eins</seg></ref>'
    make(tmp_path, set_xml=f'<doc id="a">{src}{ref}</doc><doc id="b">{src}</doc>')
    assert "doc b seg 1" in complaint(corpus_of(tmp_path, "set.xml"))


def test_standard_input_is_copied_and_can_be_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\teins\nbad\n")))
    corpus = spool(find("-", "en", "de"), tmp_path)
    assert corpus.name == "stdin"
    assert corpus.count() == corpus.count() == 2
    assert complaint(corpus).startswith("stdin line 2 has 1 column")


def test_named_pipes_of_the_same_name_are_copied_separately(tmp_path: Path) -> None:
    spooled = []
    copies = tmp_path / "copies"
    copies.mkdir()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        sides = [tmp_path / folder / f"pipe.{lang}" for lang in ("en", "de")]
        for side in sides:
            os.mkfifo(side)
        writers = [threading.Thread(target=side.write_text, args=(f"{side}\n",)) for side in sides]
        for writer in writers:
            writer.start()
        spooled.append(spool(find(f"{sides[0]}:{sides[1]}", "en", "de"), copies))
        for writer in writers:
            writer.join()
    for folder, corpus in zip(("a", "b"), spooled, strict=True):
        (pair,) = pairs(corpus)
        assert [Path(os.fsdecode(side)) for side in pair] == [
            tmp_path / folder / f"pipe.{lang}" for lang in ("en", "de")
        ]


def test_files_that_can_be_read_twice_are_not_copied(tmp_path: Path) -> None:
    make(tmp_path, a_en="x\n", a_de="y\n")
    corpus = corpus_of(tmp_path, "a")
    assert spool(corpus, tmp_path) == corpus


def test_a_block_has_the_number_of_its_first_pair(tmp_path: Path) -> None:
    make(tmp_path, a_en="1\n2\n3\n", a_de="x\ny\nz\n")
    corpus = corpus_of(tmp_path, "a")
    assert list(corpus.blocks(2)) == [PairBlock(1, [b"1", b"2"], [b"x", b"y"]), PairBlock(3, [b"3"], [b"z"])]
    assert corpus.location("source", 1234) == f"{tmp_path}/a.en line 1,234"


def test_a_folder_of_mtdata_contains_training_text_and_test_sets(tmp_path: Path) -> None:
    make(tmp_path / "data", train_eng="one\n", train_deu="eins\n")
    make(tmp_path / "data" / "tests", Statmt_eng="two\n", Statmt_deu="zwei\n")
    assert corpus_of(tmp_path, "data").name == "data"
    assert pairs(corpus_of(tmp_path, "data")) == [(b"one", b"eins")]
    assert pairs(corpus_of(tmp_path, "data/tests/Statmt")) == [(b"two", b"zwei")]
    make(tmp_path / "data", train_en="closer\n")
    assert pairs(corpus_of(tmp_path, "data/train")) == [(b"closer", b"eins")]
