"""The training set has the right text and order, and subwords come from a fixed sample."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt_cli.data.cleaning.clean import REPLACED
from nmt_cli.data.cleaning.filters import INVALID
from nmt_cli.data.dataset import open_dataset, train_corpora
from nmt_cli.errors import UserError
from nmt_cli.text.tokenizers import load_tokenizers
from tests.data.corpora import (
    COLUMNS,
    Make,
    Pairs,
    WritePairs,
    dropped_pairs,
    named_corpora,
    report_on,
    train_lines,
)

Settings = Callable[..., str]


def test_corpora_keep_their_order(tmp_path: Path, make: Make, write_pairs: WritePairs) -> None:
    corpora = [[("z", "1"), ("y", "2")], [("a", "3")], [("m", "4"), ("z", "1")]]
    prefixes = [write_pairs(tmp_path / f"c{i}", pairs) for i, pairs in enumerate(corpora)]
    make(tmp_path / "out", prefixes)
    assert train_lines(tmp_path / "out") == ["z", "y", "a", "m", "z"]
    assert train_lines(tmp_path / "out", "target") == ["1", "2", "3", "4", "1"]


def test_the_text_is_prepared_and_the_offsets_point_to_its_lines(tmp_path: Path, make: Make) -> None:
    raw = [" two\tspaces  ", "e\u0301", "bell\x07 zero\u200bwidth", "\ufb01ne", "U+2028\u2028inside"]
    prepared = ["two spaces", "é", "bell zero\u200bwidth", "\ufb01ne", "U+2028 inside"]
    for ending in ("en", "de"):
        (tmp_path / f"c.{ending}").write_bytes("".join(f"{line}\n" for line in raw).encode())
    make(tmp_path / "out", [str(tmp_path / "c")])
    for side in ("source", "target"):
        assert train_lines(tmp_path / "out", side) == prepared
        starts = np.load(tmp_path / "out" / f"train.{side}.lines.npy")
        assert starts.tolist() == np.cumsum([0, *(len(line.encode()) + 1 for line in prepared)]).tolist()


@pytest.mark.parametrize(
    ("source", "lines"),
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
def test_odd_lines_stay_aligned(tmp_path: Path, make: Make, source: bytes, lines: list[str]) -> None:
    (tmp_path / "c.en").write_bytes(source)
    (tmp_path / "c.de").write_bytes(b"one\ntwo\nthree\n")
    make(tmp_path / "out", [str(tmp_path / "c")])
    assert train_lines(tmp_path / "out") == lines
    partners = ["one", "two", "three"] if len(lines) == 3 else ["one", "three"]
    assert train_lines(tmp_path / "out", "target") == partners


def test_nul_bytes_are_removed_and_noted(tmp_path: Path, make: Make) -> None:
    (tmp_path / "c.en").write_bytes(b"one\nt\0wo\n")
    (tmp_path / "c.de").write_bytes(b"\0eins\nzwei\n")
    make(tmp_path / "out", [str(tmp_path / "c")])
    assert train_lines(tmp_path / "out") == ["one", "two"]
    noted = report_on(tmp_path / "out")[0]["noted"]["NUL bytes taken out"]
    assert (noted["pairs"], sorted(sample["number"] for sample in noted["samples"])) == (2, [1, 2])


@pytest.mark.parametrize(
    ("rule", "source", "target", "field", "reason"),
    [
        ("replace", "one t\ufffdwo three", "eins zwei dr\ufffd\ufffdei", "noted", REPLACED),
        ("skip", "one", "eins", "dropped", INVALID),
    ],
)
def test_invalid_utf8_is_replaced_or_skipped_with_the_other_side(
    tmp_path: Path, make: Make, rule: str, source: str, target: str, field: str, reason: str
) -> None:
    (tmp_path / "c.en").write_bytes(b"one\nt\xffwo\nthree\n")
    (tmp_path / "c.de").write_bytes(b"eins\nzwei\ndr\xc3\xc3ei\n")
    make(tmp_path / "out", [str(tmp_path / "c")], f"corpus.invalid_utf8={rule}")
    assert train_lines(tmp_path / "out") == source.split()
    assert train_lines(tmp_path / "out", "target") == target.split()
    report = report_on(tmp_path / "out")[0]
    assert (report["read"], report["kept"], report[field][reason]["pairs"]) == (3, len(source.split()), 2)


@pytest.mark.parametrize("corpus", ["packed", "table.tsv.gz", "set.en.sgm:{0}/set.de.sgm", "set.xml"])
def test_equal_pairs_in_any_format_give_equal_training_sets(
    tmp_path: Path, make: Make, toy_pairs: Pairs, toy_dataset: Path, corpus: str
) -> None:
    inside = {}
    for lang, lines in zip(("en", "de"), zip(*toy_pairs, strict=True), strict=True):
        (tmp_path / f"packed.{lang}.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
        inside[lang] = "".join(f'<seg id="{i}"> {line} </seg>\n' for i, line in enumerate(lines, 1))
        (tmp_path / f"set.{lang}.sgm").write_text(f'<doc docid="d">\n{inside[lang]}</doc>')
    table = "".join(f"{source}\t{target}\n" for source, target in toy_pairs)
    (tmp_path / "table.tsv.gz").write_bytes(gzip.compress(table.encode()))
    both = f"<src><p>{inside['en']}</p></src><ref><p>{inside['de']}</p></ref>"
    (tmp_path / "set.xml").write_text(f'<dataset><doc id="d">{both}</doc></dataset>')
    make(tmp_path / "out", [f"{tmp_path}/{corpus}".format(tmp_path)])
    for side in ("source", "target"):
        for content in ("txt", "lines.npy", "tokens.npy", "offsets.npy"):
            name = f"train.{side}.{content}"
            assert (tmp_path / "out" / name).read_bytes() == (toy_dataset / name).read_bytes()


def sampled_lines(folder: Path) -> list[int]:
    """Return the numbers of the lines whose only word is in the vocabulary."""
    entries = (folder / "tokenizer" / "joint.vocabulary.txt").read_text().split()
    return sorted(int(entry[1:]) for entry in entries if entry[1:].isdigit())


def test_subwords_come_from_a_fixed_sample_spread_over_the_corpus(
    tmp_path: Path, make: Make, write_pairs: WritePairs
) -> None:
    corpus = write_pairs(tmp_path / "c", [(f"w{n}", f"w{n}") for n in range(1000)])
    settings = ("tokenizer.kind=word", "text.words=raw", "tokenizer.sample_lines=40")
    for name in ("first", "again"):
        make(tmp_path / name, [corpus], *settings)
    lines = sampled_lines(tmp_path / "first")
    assert lines == sampled_lines(tmp_path / "again")
    assert [number // 50 for number in lines] == list(range(20))


def test_a_sample_larger_than_the_corpus_is_the_corpus(
    tmp_path: Path, make: Make, write_pairs: WritePairs
) -> None:
    corpus = write_pairs(tmp_path / "c", [(f"w{n}", f"w{n}") for n in range(100)])
    make(tmp_path / "out", [corpus], "tokenizer.kind=word", "text.words=raw", "tokenizer.sample_lines=900")
    assert sampled_lines(tmp_path / "out") == list(range(100))
    assert open_dataset(tmp_path / "out").manifest["splits"]["train"]["source_unknowns"] == 0


@pytest.fixture
def two_corpora(tmp_path: Path, write_pairs: WritePairs) -> Settings:
    """Return a function that makes the setting of the corpora "real" and "made", with more keys for each."""
    paths = [
        write_pairs(tmp_path / "real", [("ab", "ba"), ("", "x"), ("cd", "dc"), ("ab", "ba")]),
        write_pairs(tmp_path / "made", [("ab", "ba"), ("ee", "abcdef"), ("gg hh ii", "hh"), ("ab", "ba")]),
    ]

    return lambda real="", made="": named_corpora(("real", paths[0], real), ("made", paths[1], made))


def corpus_ranges(folder: Path) -> Any:
    return json.loads((folder / "dataset.json").read_bytes())["splits"]["train"].get("corpora")


def test_the_manifest_has_the_range_of_each_named_corpus_after_filtering(
    tmp_path: Path, make: Make, two_corpora: Settings
) -> None:
    out = tmp_path / "out"
    own = 'tag="<BT>", filters={max_words=2, duplicates=true, max_subwords=6}'
    make(out, (), two_corpora("", own))
    assert corpus_ranges(out) == [
        {"name": "real", "first": 0, "pairs": 3, "tag": ""},
        {"name": "made", "first": 3, "pairs": 1, "tag": "<BT>"},
    ]
    assert train_lines(out) == ["ab", "cd", "ab", "<BT> ab"]
    assert [(corpus.name, corpus.pairs) for corpus in train_corpora(open_dataset(out))] == [
        ("real", 3),
        ("made", 1),
    ]
    assert {corpus["name"]: dropped_pairs(corpus) for corpus in report_on(out)} == {
        "real": {"empty side": 1},
        "made": {"too many words": 1, "duplicate": 1, "too many subwords": 1},
    }


def test_a_tag_is_one_symbol_that_filters_ignore(tmp_path: Path, make: Make, two_corpora: Settings) -> None:
    out = tmp_path / "out"
    make(out, (), two_corpora("", 'tag="<2de>", filters={max_words=3, max_ratio=3}'))
    assert "<2de> gg hh ii" in train_lines(out)
    tokenizers = load_tokenizers(out / "tokenizer")
    assert tokenizers.source.symbols == ("<2de>",)
    source = open_dataset(out).splits["train"].source
    first = [tokenizers.source.vocabulary.entries[source.tokens[source.offsets[n]]] for n in range(7)]
    assert [entry == "<2de>" for entry in first] == [False] * 3 + [True] * 4


ONE = "en\tde\ts\na\tx\t0.9\nb\tx\t0.2\nc c c c\ty\t0.4\nheld out\ttest\t1\n"
TWO = "en\tde\ts\nd\tx\t0.5\na\tx\t0.9\nc\ty\t0.1\nHeld out\ttest!\t1\n"


@pytest.mark.parametrize(
    ("one", "two", "kept"),
    [
        ("", "min_score=0.5", "a,b,c c c c,d,a"),
        ("", "one_per_target=true, duplicates=true", "a,b,c c c c"),
        ("one_per_target=true", "", "a,c c c c,d,a,c"),
        ("decontaminate=false", "duplicates=true", "a,b,c c c c,held out,d,c"),
    ],
)
def test_each_corpus_uses_its_own_score_duplicate_and_held_out_filters(
    tmp_path: Path, make: Make, one: str, two: str, kept: str
) -> None:
    named = []
    for name, rows, own in (("one", ONE, one), ("two", TWO, two)):
        (tmp_path / f"{name}.tsv").write_text(rows)
        named.append((name, tmp_path / f"{name}.tsv", f"filters={{{own}}}"))
    (tmp_path / "test.tsv").write_text("en\tde\ts\nheld out\ttest\t1\n")
    make(
        tmp_path / "out",
        (),
        *(named_corpora(*named), *COLUMNS),
        valid=[str(tmp_path / "test.tsv")],
    )
    assert ",".join(train_lines(tmp_path / "out")) == kept


@pytest.mark.parametrize(
    ("one", "two", "kept"),
    [
        ("max_subwords=5, duplicates=true", "duplicates=true", "ab,abc de"),
        ("max_subwords=5, one_per_target=true", "max_subwords=5, one_per_target=true", "ab"),
    ],
)
def test_an_overlong_pair_does_not_replace_a_pair_that_repeats_it(
    tmp_path: Path, make: Make, write_pairs: WritePairs, one: str, two: str, kept: str
) -> None:
    first = write_pairs(tmp_path / "one", [("abc de", "abcd"), ("ab", "abcd")])
    second = write_pairs(tmp_path / "two", [("abc de", "abcd")])
    corpora = ("one", first, f"filters={{{one}}}"), ("two", second, f"filters={{{two}}}")
    make(tmp_path / "out", (), named_corpora(*corpora))
    assert ",".join(train_lines(tmp_path / "out")) == kept
    assert dropped_pairs(report_on(tmp_path / "out")[0]) == {"too many subwords": 1}


def test_tagged_sets_are_held_out_and_keep_their_tags_in_variants(
    tmp_path: Path, make: Make, write_pairs: WritePairs
) -> None:
    train = write_pairs(tmp_path / "train", [("Known one", "bekannt"), ("other", "anders")])
    dev = write_pairs(tmp_path / "dev", [("<2de> known one.", "Bekannt")])
    named = named_corpora(("train", train, 'tag="<2de>"'))
    make(tmp_path / "out", (), named, valid=[dev, f"{dev}+upper", f"{dev}+title"])
    assert train_lines(tmp_path / "out") == ["<2de> other"]
    for kind, source in (("upper", "<2de> KNOWN ONE."), ("title", "<2de> Known One.")):
        assert (tmp_path / "out" / f"dev+{kind}.source.raw.txt").read_text() == f"{source}\n"


def test_a_single_corpus_is_not_listed_in_the_manifest(
    tmp_path: Path, make: Make, two_corpora: Settings
) -> None:
    make(tmp_path / "plain", [str(tmp_path / "real")])
    assert corpus_ranges(tmp_path / "plain") is None
    manifest = json.loads((tmp_path / "plain" / "dataset.json").read_bytes())
    assert "named" not in manifest["settings"]["corpus"]
    assert set(manifest["inputs"][0]) == {"role", "name", "pairs", "files"}
    assert [corpus.name for corpus in train_corpora(open_dataset(tmp_path / "plain"))] == ["train"]


def test_corpora_of_train_options_have_the_names_of_their_files(
    tmp_path: Path, make: Make, two_corpora: Settings
) -> None:
    prefixes = [str(tmp_path / name) for name in ("real", "made")]
    make(tmp_path / "out", prefixes)
    assert [(entry["name"], entry["first"], entry["pairs"]) for entry in corpus_ranges(tmp_path / "out")] == [
        ("real", 0, 3),
        ("made", 3, 4),
    ]
    make(tmp_path / "twice", [prefixes[0], prefixes[0]])
    assert corpus_ranges(tmp_path / "twice") is None


def test_named_corpora_are_up_to_date_until_a_setting_of_one_changes(
    tmp_path: Path, make: Make, two_corpora: Settings
) -> None:
    make(tmp_path / "out", (), two_corpora("", 'tag="<BT>"'))
    assert make(tmp_path / "out", (), two_corpora("", 'tag="<BT>"')).report is None
    with pytest.raises(UserError, match=r'input 2: train made .*tag "<BT>" -> train made .*tag "<bt>"'):
        make(tmp_path / "out", (), two_corpora("", 'tag="<bt>"'))


@pytest.mark.parametrize(
    ("train", "own", "message"),
    [
        (["real"], "", r"Both train and \[\[corpus\]\] sections name training corpora"),
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
        (
            [],
            'filters={source_script="Lattin"}',
            "filters of made: .*source_script is 'Lattin', which is not a Unicode script",
        ),
    ],
)
def test_invalid_settings_of_named_corpora_are_refused(
    tmp_path: Path, make: Make, two_corpora: Settings, train: list[str], own: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        make(tmp_path / "out", [str(tmp_path / name) for name in train], two_corpora("", own))


def test_a_missing_training_corpus_is_reported_with_the_options(tmp_path: Path, make: Make) -> None:
    with pytest.raises(UserError, match=r"There is no training text. Name it with train, or with \[\["):
        make(tmp_path / "out", ())


def test_a_reused_tokenizer_must_have_the_tags(tmp_path: Path, make: Make, two_corpora: Settings) -> None:
    make(tmp_path / "first", (), two_corpora("", 'tag="<BT>"'))
    make(tmp_path / "again", (), two_corpora('tag="<BT>"'), reuse=tmp_path / "first")
    assert train_lines(tmp_path / "again")[0] == "<BT> ab"
    with pytest.raises(UserError, match=r"real: tag <2de> is not a symbol of .*first \(it has <BT>\)"):
        make(tmp_path / "other", (), two_corpora('tag="<2de>"'), reuse=tmp_path / "first")


def test_corpora_of_a_damaged_manifest_are_refused(tmp_path: Path, make: Make, two_corpora: Settings) -> None:
    make(tmp_path / "out", (), two_corpora())
    path = tmp_path / "out" / "dataset.json"
    for right, wrong in (('"first": 3', '"first": 2'), ('"tag": ""', '"weight": "x", "tag": ""')):
        manifest = path.read_text()
        path.write_text(manifest.replace(right, wrong, 1))
        with pytest.raises(UserError, match="its corpora do not add up to the pairs of train"):
            train_corpora(open_dataset(tmp_path / "out"))
        path.write_text(manifest)
