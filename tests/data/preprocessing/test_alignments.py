"""Alignments follow their pairs through cleaning, and become links between tokens."""

import json
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from nmt_cli.data.dataset import LINK_BITS, open_dataset, write_manifest
from nmt_cli.data.guard import verify
from nmt_cli.errors import UserError
from nmt_cli.text.tokenizer import SIDES, Tokenizer
from nmt_cli.text.tokenizers import load_tokenizers
from tests.checks import refusal
from tests.data.corpora import Make, Pairs, WritePairs, ids_of, named_corpora, train_lines

PAIRS = [
    ("a dog runs", "ein Hund läuft"),
    ("", "x"),
    ("we see", "wir sehen"),
    ("a dog", "ein Hund"),
    ("yes", "ja"),
]
LINES = ["0-0 1-1 2-2", "0-0", "1-0 0-1", "1-1 0-0 0-1", ""]


def linked(folder: Path) -> list[list[tuple[int, int]]]:
    """Return the links of each pair as (source token, target token), sorted by target."""
    links = open_dataset(folder).splits["train"].links
    assert links is not None
    codes = np.split(np.asarray(links.tokens), links.offsets[1:-1])
    return [[(int(code) & (1 << LINK_BITS) - 1, int(code) >> LINK_BITS) for code in pair] for pair in codes]


def spread(source: str, target: str, links: str) -> list[tuple[int, int]]:
    """Return the links between the characters of the words, which are the tokens. Spaces are tokens too, and
    belong to the next word."""
    owners = [
        [text[:position].count(" ") + (text[position] == " ") for position in range(len(text))]
        for text in (source, target)
    ]
    pairs = [(int(one), int(other)) for one, other in (link.split("-") for link in links.split())]
    both = ((s, t) for t in range(len(target)) for s in range(len(source)))
    return [(s, t) for s, t in both if (owners[0][s], owners[1][t]) in pairs]


def file_of(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_a_file_links_the_tokens_of_the_pairs_that_cleaning_keeps(
    tmp_path: Path, make: Make, write_pairs: WritePairs
) -> None:
    repeated: Pairs = [*PAIRS, ("we see", "wir sehen")]
    corpus, file = write_pairs(tmp_path / "c", repeated), file_of(tmp_path / "c.align", [*LINES, "0-0"])
    out = tmp_path / "out"
    make(out, [corpus], f'corpus.alignments=["{file}"]', "filter.duplicates=true", "filter.max_words=3")
    assert train_lines(out) == ["a dog runs", "we see", "a dog", "yes"]
    kept = [0, 2, 3, 4]
    assert linked(out) == [spread(*PAIRS[number], LINES[number]) for number in kept]


def test_each_corpus_has_its_own_file_and_tags_do_not_count(
    tmp_path: Path, make: Make, write_pairs: WritePairs
) -> None:
    one, other = write_pairs(tmp_path / "one", PAIRS[2:3]), write_pairs(tmp_path / "other", PAIRS[:1])
    file = file_of(tmp_path / "align", LINES[:1])
    corpora = named_corpora(("one", one, ""), ("other", other, 'tag="<2de>"'))
    make(tmp_path / "out", (), corpora, f'corpus.alignments=["", "{file}"]')
    assert train_lines(tmp_path / "out") == ["we see", "<2de> a dog runs"]
    links = spread(*PAIRS[0], LINES[0])
    assert linked(tmp_path / "out") == [[], [(s + 1, t) for s, t in links]]  # the tag is one token


def words_of(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """Return the word of each token but the end token, by decoding. A space belongs to the next word."""
    texts = [tokenizer.decode(ids[:n]).split() for n in range(len(ids))]
    return [len(text) - (text != before) for before, text in pairwise(texts)]


@pytest.mark.parametrize("kind", [("char",), ("word",), ("bpe", 60), ("sentencepiece", 60)], ids=str)
def test_the_aligner_links_the_tokens_of_words_that_translate_each_other(
    tmp_path: Path, make: Make, toy: str, kind: tuple[object, ...]
) -> None:
    out = tmp_path / "out"
    names = ("tokenizer.kind", "tokenizer.vocab_size")
    own = [f"{name}={value}" for name, value in zip(names, kind, strict=False)]
    make(out, [toy], "corpus.align=true", *own)
    train, tokenizers = open_dataset(out).splits["train"], load_tokenizers(out / "tokenizer")
    sides = zip(SIDES, (train.source, train.target), strict=True)
    words = [[words_of(tokenizers.side(side), ids) for ids in ids_of(sentences)] for side, sentences in sides]
    found = wanted = right = 0
    for links, source, target in zip(linked(out), *words, strict=True):
        # Each word of the toy corpus stands for the word at the same position.
        both = product(enumerate(source), enumerate(target))
        expected = {(s, t) for (s, one), (t, other) in both if one == other}
        found, wanted, right = found + len(links), wanted + len(expected), right + len(expected & {*links})
    assert right > 0.97 * found and right > 0.97 * wanted


def test_the_last_word_of_a_source_without_end_token_is_linked(
    tmp_path: Path, make: Make, write_pairs: WritePairs
) -> None:
    """Sources of some imported models have no end token."""
    corpus, file = write_pairs(tmp_path / "c", PAIRS), file_of(tmp_path / "c.align", LINES)
    make(tmp_path / "model", [corpus])
    bare = (tmp_path / "model" / "tokenizer").rename(tmp_path / "bare")
    recipe = json.loads((bare / "tokenizer.json").read_text())
    marks = load_tokenizers(bare).source.vocabulary.marks
    recipe |= {"bare_source": True, "marks": {"joint": marks}}
    (bare / "tokenizer.json").write_text(json.dumps(recipe))
    make(tmp_path / "out", [corpus], f'corpus.alignments=["{file}"]', reuse=bare)
    expected = [spread(*pair, line) for pair, line in zip(PAIRS, LINES, strict=True) if all(pair)]
    assert linked(tmp_path / "out") == expected


ONE = 'corpus.alignments=["FILE"]'
WRONG_LINKS = (
    'FILE line 3 must have links such as "0-0 1-2" between the 2 and 2 words of the prepared text, '
    "source first. Correct the line, or leave it empty."
)


@pytest.mark.parametrize(
    ("line", "settings", "problem"),
    [
        (
            "0-0",
            [ONE.replace("]", ', ""]')],
            "corpus.alignments must have 1 files, one for each training corpus.",
        ),
        (
            "0-0",
            [ONE.replace("FILE", "FILE.missing")],
            "corpus.alignments: FILE.missing does not exist or is not a file. Check the path.",
        ),
        ("0-0\n0-0", [ONE], "FILE must have 5 lines, one for each pair of c."),
        ("0-0 1_1", [ONE], WRONG_LINKS),
        ("0-0 2-1", [ONE], WRONG_LINKS),
        (
            "0-0",
            [ONE, "tokenizer.placeholders=2"],
            "corpus.alignments counts words, but placeholder symbols replace some. Set corpus.align instead.",
        ),
    ],
    ids=["files", "missing", "lines", "format", "word", "placeholders"],
)
def test_alignments_that_do_not_fit_are_refused_and_nothing_is_written(
    tmp_path: Path, make: Make, write_pairs: WritePairs, line: str, settings: list[str], problem: str
) -> None:
    file = str(file_of(tmp_path / "c.align", [*LINES[:2], line, *LINES[3:]]))
    corpus, own = write_pairs(tmp_path / "c", PAIRS), [setting.replace("FILE", file) for setting in settings]
    assert refusal(make, tmp_path / "out", [corpus], *own) == problem.replace("FILE", file)
    assert {path.name for path in tmp_path.iterdir()} == {"c.en", "c.de", "c.align"}


def test_other_alignments_make_another_dataset(tmp_path: Path, make: Make, write_pairs: WritePairs) -> None:
    corpus, file = write_pairs(tmp_path / "c", PAIRS), file_of(tmp_path / "c.align", LINES)
    arguments = (tmp_path / "out", [corpus], f'corpus.alignments=["{file}"]')
    make(*arguments)
    assert make(*arguments).report is None  # up to date
    file_of(file, ["", *LINES[1:]])
    assert "input 1: " in refusal(make, *arguments)
    assert refusal(make, tmp_path / "out", [corpus]).startswith(f"{tmp_path / 'out'} was made with other")


def test_links_that_do_not_match_their_offsets_are_damage(tmp_path: Path, make: Make, toy: str) -> None:
    make(tmp_path / "out", [toy], "corpus.align=true")
    dataset = open_dataset(tmp_path / "out")
    verify(dataset)
    path = tmp_path / "out" / "train.links.offsets.npy"
    np.save(path, np.load(path)[::-1])
    manifest = {key: value for key, value in dataset.manifest.items() if key not in ("files", "format")}
    (tmp_path / "out" / "dataset.json").unlink()
    write_manifest(tmp_path / "out", manifest)
    with pytest.raises(UserError, match=r"train\.links\.offsets\.npy ranges from"):
        verify(open_dataset(tmp_path / "out"))


@pytest.mark.parametrize("form", ["tsv", "tsv without names", "jsonl"])
def test_a_column_links_the_tokens_of_its_pairs(tmp_path: Path, make: Make, form: str) -> None:
    rows = [(*pair, line) for pair, line in zip(PAIRS, LINES, strict=True)]
    path, name = tmp_path / f"c.{form.split()[0]}", "3" if "without" in form else "links"
    if form == "jsonl":
        records = [{"en": source, "de": target, "links": links} for source, target, links in rows]
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    else:
        head = [] if "without" in form else [("en", "de", "links")]
        path.write_text("".join("\t".join(row) + "\n" for row in [*head, *rows]))
    make(tmp_path / "out", [str(path)], f"corpus.alignment_column={name}", "filter.max_words=3")
    kept = [0, 2, 3, 4]
    assert linked(tmp_path / "out") == [spread(*PAIRS[number], LINES[number]) for number in kept]


def test_a_wrong_column_of_links_is_named(tmp_path: Path, make: Make, write_pairs: WritePairs) -> None:
    path = tmp_path / "c.tsv"
    path.write_text("en\tde\tlinks\na b\tx y\t0-0\na b\tx y\t0-2\n")
    column = "corpus.alignment_column=links"
    assert refusal(make, tmp_path / "out", [str(path)], column) == (
        f'{path} line 3: the links column must have links such as "0-0 1-2" between the 2 and 2 words of the '
        "prepared text, source first. Correct the line, or leave it empty."
    )
    file = file_of(tmp_path / "c.align", ["", ""])
    assert refusal(make, tmp_path / "out", [str(path)], column, f'corpus.alignments=["{file}"]') == (
        f"{path} has its alignments in corpus.alignment_column, and in {file} of corpus.alignments. "
        "Leave one out."
    )
    text = write_pairs(tmp_path / "text", PAIRS)
    assert refusal(make, tmp_path / "out", [text], column).startswith(
        "corpus.alignment_column is 'links', but no corpus has columns."
    )
    assert refusal(make, tmp_path / "out", [str(path)], column, "tokenizer.placeholders=2") == (
        "corpus.alignment_column counts words, but placeholder symbols replace some. "
        "Set corpus.align instead."
    )
