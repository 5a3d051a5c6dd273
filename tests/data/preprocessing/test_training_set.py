"""The training set: its text, its order, and the sample that subwords are learnt from."""

import bz2
import gzip
import json
import lzma
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt_cli.data.dataset import open_dataset, train_corpora
from nmt_cli.data.preprocessing.preprocess import Outcome
from nmt_cli.errors import UserError
from nmt_cli.text.tokenizers import load_tokenizers

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Pairs = Sequence[tuple[str, str]]


def text(folder: Path, side: str = "source") -> list[str]:
    return (folder / f"train.{side}.txt").read_bytes().decode().split("\n")[:-1]


def report_on_first(folder: Path) -> dict[str, Any]:
    first: dict[str, Any] = json.loads((folder / "filter-report.json").read_text())[0]
    return first


def test_several_corpora_come_in_the_order_in_which_they_are_given(
    tmp_path: Path, make: Callable[..., object], write_pairs: Callable[[Path, Pairs], str]
) -> None:
    corpora = [[("z", "1"), ("y", "2")], [("a", "3")], [("m", "4"), ("z", "1")]]
    prefixes = [write_pairs(tmp_path / f"c{i}", pairs) for i, pairs in enumerate(corpora)]
    make(tmp_path / "out", prefixes)
    assert text(tmp_path / "out") == ["z", "y", "a", "m", "z"]
    assert text(tmp_path / "out", "target") == ["1", "2", "3", "4", "1"]


def test_the_text_is_prepared_and_its_lines_are_where_the_offsets_say(
    tmp_path: Path, make: Callable[..., object]
) -> None:
    raw = [" two\tblanks  ", "e\u0301", "bell\x07 zero\u200bwidth", "\ufb01ne", "U+2028\u2028inside"]
    prepared = ["two blanks", "é", "bell zero\u200bwidth", "\ufb01ne", "U+2028 inside"]
    for ending in ("en", "de"):
        (tmp_path / f"c.{ending}").write_bytes("".join(f"{line}\n" for line in raw).encode())
    make(tmp_path / "out", [str(tmp_path / "c")])
    for side in ("source", "target"):
        assert text(tmp_path / "out", side) == prepared
        starts = np.load(tmp_path / "out" / f"train.{side}.lines.npy")
        assert starts.tolist() == np.cumsum([0, *(len(line.encode()) + 1 for line in prepared)]).tolist()


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        (b"one\r\ntwo\r\nthree\r\n", ["one", "two", "three"]),
        (b"\xef\xbb\xbfone\ntwo\nthree", ["one", "two", "three"]),
        ("one\u2028a\ntwo\u2029b\x85\nthree\x0bc\n".encode(), ["one a", "two b", "three c"]),
        (b"one\ntw\ro\nthree\x1c3\x0c\n", ["one", "tw o", "three 3"]),
        (b"one\ntw\0o\nthree\n", ["one", "two", "three"]),
        (b"one\n" + b"x" * 1_000_000 + b"\nthree\n", ["one", "three"]),
        (b"one\n" + b"x " * 500_000 + b"\nthree\n", ["one", "three"]),
    ],
    ids=["CRLF", "BOM", "U+2028", "controls", "NUL", "1 MB word", "1 MB line"],
)
def test_odd_lines_stay_beside_their_partners(
    tmp_path: Path, make: Callable[..., object], source: bytes, kept: list[str]
) -> None:
    (tmp_path / "c.en").write_bytes(source)
    (tmp_path / "c.de").write_bytes(b"one\ntwo\nthree\n")
    make(tmp_path / "out", [str(tmp_path / "c")])
    assert text(tmp_path / "out") == kept
    partners = ["one", "two", "three"] if len(kept) == 3 else ["one", "three"]
    assert text(tmp_path / "out", "target") == partners


def test_nul_bytes_are_taken_out_and_noted(tmp_path: Path, make: Callable[..., object]) -> None:
    (tmp_path / "c.en").write_bytes(b"one\nt\0wo\n")
    (tmp_path / "c.de").write_bytes(b"\0eins\nzwei\n")
    make(tmp_path / "out", [str(tmp_path / "c")])
    assert text(tmp_path / "out") == ["one", "two"]
    found = report_on_first(tmp_path / "out")["noted"]["NUL bytes taken out"]
    assert (found["pairs"], sorted(sample["number"] for sample in found["samples"])) == (2, [1, 2])


def test_lines_that_are_not_utf8_are_replaced_where_asked(
    tmp_path: Path, make: Callable[..., object]
) -> None:
    (tmp_path / "c.en").write_bytes(b"one\nt\xffwo\nthree\n")
    (tmp_path / "c.de").write_bytes(b"eins\nzwei\ndr\xc3\xc3ei\n")
    make(tmp_path / "out", [str(tmp_path / "c")], "corpus.invalid_utf8=replace")
    assert text(tmp_path / "out") == ["one", "t\ufffdwo", "three"]
    assert text(tmp_path / "out", "target") == ["eins", "zwei", "dr\ufffd\ufffdei"]
    assert report_on_first(tmp_path / "out")["noted"]["invalid UTF-8 replaced"]["pairs"] == 2


def test_lines_that_are_not_utf8_go_with_their_partners_where_asked(
    tmp_path: Path, make: Callable[..., object]
) -> None:
    (tmp_path / "c.en").write_bytes(b"one\nt\xffwo\nthree\nfour\n")
    (tmp_path / "c.de").write_bytes(b"eins\nzwei\ndr\xc3\xc3ei\nvier\n")
    make(tmp_path / "out", [str(tmp_path / "c")], "corpus.invalid_utf8=skip")
    assert text(tmp_path / "out") == ["one", "four"]
    assert text(tmp_path / "out", "target") == ["eins", "vier"]
    found = report_on_first(tmp_path / "out")
    assert (found["read"], found["kept"], found["dropped"]["invalid UTF-8"]["pairs"]) == (4, 2, 2)


def segments(lines: Sequence[str]) -> str:
    return "".join(f'<seg id="{i}"> {line} </seg>\n' for i, line in enumerate(lines, 1))


def write_every_way(folder: Path, pairs: Pairs) -> None:
    sides = dict(zip(("en", "de"), zip(*pairs, strict=True), strict=True))
    table = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
    packers: dict[str, Callable[[bytes], bytes]] = {
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "xz": lzma.compress,
        "zst": zstd.compress,
    }
    for lang, lines in sides.items():
        plain = "".join(f"{line}\n" for line in lines).encode()
        (folder / f"plain.{lang}").write_bytes(plain)
        (folder / f"disguised.{lang}").write_bytes(gzip.compress(plain))
        (folder / f"set.{lang}.sgm").write_text(f'<doc docid="d">\n{segments(lines)}</doc>')
        for ending, pack in packers.items():
            (folder / f"packed-{ending}.{lang}.{ending}").write_bytes(pack(plain))
    (folder / "table.tsv").write_bytes(table)
    (folder / "table.tsv.zst").write_bytes(zstd.compress(table))
    inside = {lang: segments(lines) for lang, lines in sides.items()}
    both = f"<src><p>{inside['en']}</p></src><ref><p>{inside['de']}</p></ref>"
    (folder / "set.xml").write_text(f'<dataset><doc id="d">{both}</doc></dataset>')


@pytest.mark.parametrize(
    "way",
    [
        *("plain", "disguised", "packed-gz", "packed-bz2", "packed-xz", "packed-zst"),
        *("{0}/plain.en:{0}/packed-xz.de.xz", "table.tsv", "table.tsv.zst"),
        *("{0}/set.en.sgm:{0}/set.de.sgm", "set.xml"),
    ],
)
def test_every_way_to_give_the_same_pairs_gives_the_same_training_set(
    tmp_path: Path, make: Callable[..., object], toy_pairs: Pairs, toy_dataset: Path, way: str
) -> None:
    write_every_way(tmp_path, toy_pairs)
    make(tmp_path / "out", [way.format(tmp_path) if ":" in way else str(tmp_path / way)])
    for side in ("source", "target"):
        for what in ("txt", "lines.npy", "tokens.npy", "offsets.npy"):
            name = f"train.{side}.{what}"
            assert (tmp_path / "out" / name).read_bytes() == (toy_dataset / name).read_bytes()


def drawn(folder: Path) -> list[int]:
    """Which lines the words of a vocabulary come from, where each line is one word."""
    entries = (folder / "tokenizer" / "joint.vocabulary.txt").read_text().split()
    return sorted(int(entry[1:]) for entry in entries if entry[1:].isdigit())


def test_subwords_are_learnt_from_a_fixed_sample_that_is_spread_over_the_corpus(
    tmp_path: Path, make: Callable[..., object], write_pairs: Callable[[Path, Pairs], str]
) -> None:
    corpus = write_pairs(tmp_path / "c", [(f"w{n}", f"w{n}") for n in range(1000)])
    settings = ("tokenizer.kind=word", "text.words=raw", "tokenizer.sample_lines=40")
    for name in ("first", "again"):
        make(tmp_path / name, [corpus], *settings)
    lines = drawn(tmp_path / "first")
    assert lines == drawn(tmp_path / "again")
    assert [number // 50 for number in lines] == list(range(20))


def test_a_sample_larger_than_the_corpus_is_all_of_it(
    tmp_path: Path, make: Callable[..., object], write_pairs: Callable[[Path, Pairs], str]
) -> None:
    corpus = write_pairs(tmp_path / "c", [(f"w{n}", f"w{n}") for n in range(100)])
    make(tmp_path / "out", [corpus], "tokenizer.kind=word", "text.words=raw", "tokenizer.sample_lines=900")
    assert drawn(tmp_path / "out") == list(range(100))
    assert open_dataset(tmp_path / "out").manifest["splits"]["train"]["source_unknowns"] == 0


@pytest.fixture
def two_corpora(tmp_path: Path, write_pairs: Callable[[Path, Pairs], str]) -> Callable[..., list[str]]:
    """The setting of two corpora, "real" and "made", with these tables added."""
    paths = [
        write_pairs(tmp_path / "real", [("ab", "ba"), ("", "x"), ("cd", "dc"), ("ab", "ba")]),
        write_pairs(tmp_path / "made", [("ab", "ba"), ("ee", "abcdef"), ("gg hh ii", "hh"), ("ab", "ba")]),
    ]

    def assignment(real: str = "", made: str = "") -> list[str]:
        tables = zip(("real", "made"), paths, (real, made), strict=True)
        listed = ", ".join(
            f'{{name="{name}", path="{path}"{more and ", "}{more}}}' for name, path, more in tables
        )
        return [f"corpus.named=[{listed}]"]

    return assignment


def places(folder: Path) -> Any:
    return json.loads((folder / "dataset.json").read_bytes())["splits"]["train"].get("corpora")


def test_the_manifest_tells_where_each_named_corpus_lies_after_filtering(
    tmp_path: Path, make: Callable[..., Outcome], two_corpora: Callable[..., list[str]]
) -> None:
    out = tmp_path / "out"
    own = 'tag="<BT>", weight=2, filters={max_words=2, duplicates=true, max_subwords=6}'
    make(out, (), *two_corpora("weight=1", own))
    assert places(out) == [
        {"name": "real", "first": 0, "pairs": 3, "weight": 1.0, "tag": ""},
        {"name": "made", "first": 3, "pairs": 1, "weight": 2.0, "tag": "<BT>"},
    ]
    assert text(out) == ["ab", "cd", "ab", "<BT> ab"]
    assert [(corpus.name, corpus.pairs) for corpus in train_corpora(open_dataset(out))] == [
        ("real", 3),
        ("made", 1),
    ]
    report = json.loads((out / "filter-report.json").read_bytes())
    dropped = {each["name"]: {why: told["pairs"] for why, told in each["dropped"].items()} for each in report}
    assert dropped == {
        "real": {"empty side": 1},
        "made": {"too many words": 1, "duplicate": 1, "too many subwords": 1},
    }


def test_a_tag_is_one_symbol_and_no_word_to_the_filters(
    tmp_path: Path, make: Callable[..., Outcome], two_corpora: Callable[..., list[str]]
) -> None:
    out = tmp_path / "out"
    make(out, (), *two_corpora("", 'tag="<2de>", filters={max_words=3, max_ratio=3}'))
    assert "<2de> gg hh ii" in text(out)
    tokenizers = load_tokenizers(out / "tokenizer")
    assert tokenizers.source.symbols == ("<2de>",)
    source = open_dataset(out).splits["train"].source
    first = [tokenizers.source.vocabulary.entries[source.tokens[source.offsets[n]]] for n in range(7)]
    assert [entry == "<2de>" for entry in first] == [False] * 3 + [True] * 4


COLUMNS = ("corpus.source_column=en", "corpus.target_column=de", "corpus.score_column=s")
ONE = "en\tde\ts\na\tx\t0.9\nb\tx\t0.2\nc c c c\ty\t0.4\nheld out\ttest\t1\n"
TWO = "en\tde\ts\nd\tx\t0.5\na\tx\t0.9\nc\ty\t0.1\nHeld out\ttest!\t1\n"


@pytest.mark.parametrize(
    ("one", "two", "kept"),
    [
        ("", "min_score=0.5", "a,b,c c c c,d,a"),
        ("", "one_per_target=true, duplicates=true", "a,b,c c c c"),
        ("one_per_target=true", "", "a,c c c c,d,a,c"),
        ("one_per_source=true, decontaminate=false", "duplicates=true", "a,b,c c c c,held out,d,c"),
    ],
)
def test_scores_repetitions_and_held_out_pairs_are_looked_for_where_a_corpus_asks(
    tmp_path: Path, make: Callable[..., Outcome], one: str, two: str, kept: str
) -> None:
    named = []
    for name, rows, own in (("one", ONE, one), ("two", TWO, two)):
        (tmp_path / f"{name}.tsv").write_text(rows)
        named.append(f'{{name="{name}", path="{tmp_path / name}.tsv", filters={{{own}}}}}')
    (tmp_path / "test.tsv").write_text("en\tde\ts\nheld out\ttest\t1\n")
    make(
        tmp_path / "out",
        (),
        *(f"corpus.named=[{', '.join(named)}]", *COLUMNS),
        valid=[str(tmp_path / "test.tsv")],
    )
    assert ",".join(text(tmp_path / "out")) == kept


def test_sets_that_begin_with_tags_are_held_out_and_keep_them_in_variants(
    tmp_path: Path, make: Callable[..., Outcome], write_pairs: Callable[[Path, Pairs], str]
) -> None:
    train = write_pairs(tmp_path / "train", [("Known one", "bekannt"), ("other", "anders")])
    dev = write_pairs(tmp_path / "dev", [("<2de> known one.", "Bekannt")])
    named = f'corpus.named=[{{name="train", path="{train}", tag="<2de>"}}]'
    make(tmp_path / "out", (), named, valid=[dev, f"{dev}+upper", f"{dev}+copies"])
    assert text(tmp_path / "out") == ["<2de> other"]
    for kind, source in (("upper", "<2de> KNOWN ONE."), ("copies", "<2de> Bekannt")):
        assert (tmp_path / "out" / f"dev+{kind}.source.raw.txt").read_text() == f"{source}\n"


def test_what_names_no_corpora_is_as_it_was(
    tmp_path: Path, make: Callable[..., Outcome], two_corpora: Callable[..., list[str]]
) -> None:
    make(tmp_path / "plain", [str(tmp_path / "real")])
    assert places(tmp_path / "plain") is None
    manifest = json.loads((tmp_path / "plain" / "dataset.json").read_bytes())
    assert "named" not in manifest["settings"]["corpus"]
    assert set(manifest["inputs"][0]) == {"role", "name", "pairs", "files"}
    assert [each.name for each in train_corpora(open_dataset(tmp_path / "plain"))] == ["train"]


def test_corpora_of_the_short_way_have_the_names_of_their_files(
    tmp_path: Path, make: Callable[..., Outcome], two_corpora: Callable[..., list[str]]
) -> None:
    prefixes = [str(tmp_path / name) for name in ("real", "made")]
    make(tmp_path / "out", prefixes)
    assert [(each["name"], each["first"], each["pairs"]) for each in places(tmp_path / "out")] == [
        ("real", 0, 3),
        ("made", 3, 4),
    ]
    make(tmp_path / "twice", [prefixes[0], prefixes[0]])
    assert places(tmp_path / "twice") is None


def test_named_corpora_made_again_are_the_same_until_one_is_treated_otherwise(
    tmp_path: Path, make: Callable[..., Outcome], two_corpora: Callable[..., list[str]]
) -> None:
    make(tmp_path / "out", (), *two_corpora("", 'tag="<BT>"'))
    assert make(tmp_path / "out", (), *two_corpora("", 'tag="<BT>"')).report is None
    with pytest.raises(UserError, match=r'input 2: train made .*tag "<BT>" -> train made .*tag "<bt>"'):
        make(tmp_path / "out", (), *two_corpora("", 'tag="<bt>"'))


@pytest.mark.parametrize(
    ("train", "own", "told"),
    [
        (["real"], "", r"Both --train and \[\[corpus\]\] sections name training corpora"),
        (
            [],
            "filters={min_score=0.5}",
            r"\[\[corpus\]\] made: min_score has no effect: .*made has no scores",
        ),
        (
            [],
            'filters={held_out=["x"]}',
            "filters of made: held_out applies to all corpora. Set filter.held_out",
        ),
        ([], 'filters={source_script="Lattin"}', "source_script is 'Lattin', which is not a Unicode script"),
    ],
)
def test_what_can_not_be_had_of_named_corpora_is_told(
    tmp_path: Path,
    make: Callable[..., Outcome],
    two_corpora: Callable[..., list[str]],
    train: list[str],
    own: str,
    told: str,
) -> None:
    with pytest.raises(UserError, match=told):
        make(tmp_path / "out", [str(tmp_path / name) for name in train], *two_corpora("", own))


def test_without_any_corpus_the_ways_to_name_one_are_told(
    tmp_path: Path, make: Callable[..., Outcome]
) -> None:
    with pytest.raises(
        UserError, match=r"There is no training text. Name it with --train, or with \[\[corpus\]\]"
    ):
        make(tmp_path / "out", ())


def test_a_reused_tokeniser_must_know_the_tags(
    tmp_path: Path, make: Callable[..., Outcome], two_corpora: Callable[..., list[str]]
) -> None:
    make(tmp_path / "first", (), *two_corpora("", 'tag="<BT>"'))
    make(tmp_path / "again", (), *two_corpora('tag="<BT>"'), reuse=tmp_path / "first")
    assert text(tmp_path / "again")[0] == "<BT> ab"
    with pytest.raises(UserError, match=r"real: tag <2de> is not a symbol of .*first \(it has <BT>\)"):
        make(tmp_path / "other", (), *two_corpora('tag="<2de>"'), reuse=tmp_path / "first")


def test_corpora_of_a_damaged_manifest_are_refused(
    tmp_path: Path, make: Callable[..., Outcome], two_corpora: Callable[..., list[str]]
) -> None:
    make(tmp_path / "out", (), *two_corpora())
    path = tmp_path / "out" / "dataset.json"
    for right, wrong in (('"first": 3', '"first": 2'), ('"weight": 0.0', '"weight": "x"')):
        whole = path.read_text()
        path.write_text(whole.replace(right, wrong, 1))
        with pytest.raises(UserError, match="its corpora do not add up to the pairs of train"):
            train_corpora(open_dataset(tmp_path / "out"))
        path.write_text(whole)
