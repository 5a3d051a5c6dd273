"""Links between words follow sampling and augmentation, and become links between the drawn tokens.

The expected links are computed from the changed text alone: its words are counted, and its tokens are found
by decoding.
"""

import re
from collections.abc import Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path

import pytest

from nmt_cli.data.batching.resegment import EpochChanges, Resegmented
from nmt_cli.data.dataset import LINK_BITS, TOKENIZERS, Dataset, Sentences, open_dataset
from nmt_cli.demo.corpus import corpus
from nmt_cli.text.config import AugmentConfig, SamplingConfig
from nmt_cli.text.placeholders import JOINED, SYMBOL, TERM, TERM_END
from nmt_cli.text.tokenizer import SIDES, Tokenizer
from nmt_cli.text.tokenizers import load_tokenizers
from tests.data.corpora import Make, WritePairs, ids_of, train_lines

Link = tuple[int, int]
NOISE = "[\u3040-\u30ff\u4e00-\u9fff]|[\u0370-\u1fff\u2190-\u2bff\uac00-\ud7ff\U0001f000-\U0001ffff]+"
"""A character of a script without spaces, or a word of another script or of emoji. The demo has neither."""

WORD = re.compile(rf"{TERM}.*?{TERM_END}|{re.escape(JOINED)}|⟦\d+⟧|{NOISE}|\w+(?:['’-]\w+)*|[^\w\s]")
"""A word of the demo's grammar, a punctuation mark, or what augmentation inserts as a whole."""

INSERTED = re.compile(rf"{TERM}.*|{re.escape(JOINED)}|⟦\d+⟧|{NOISE}")
PAIRS = 500  # all were right with 5,000 too, in half a minute

SHARES = {"upper": 0.1, "title": 0.1, "unended": 0.1, "typos": 0.1, "noise": 0.2}
TERMS = {"house": "Haus", "dog": "Hund", "cat": "Katze", "old": "alte", "small": "kleine", "book": "Buch"}


def links_of(links: Sentences | None) -> list[set[Link]]:
    assert links is not None
    return [{(code & (1 << LINK_BITS) - 1, code >> LINK_BITS) for code in pair} for pair in ids_of(links)]


def words_of_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[int]]:
    """Return the text of a sentence, and for each of its tokens the number of the word in which it begins."""
    text = tokenizer.decode(ids)
    # Number of characters, without spaces, up to the end of each word.
    ends = [*accumulate(len("".join(word.split())) for word in WORD.findall(text))]
    before = ["".join(tokenizer.decode(ids[:n]).split()) for n in range(len(ids))]
    # A character of which some bytes are still missing is not complete.
    # The entry "" ends a word that is spelt in bytes.
    is_end = [tokenizer.vocabulary.entries[token] == "" for token in ids]
    starts = [len(text.rstrip("\ufffd")) - end for text, end in zip(before, is_end, strict=True)]
    return text, [next(n for n, end in enumerate(ends) if start < end) for start in starts]


def followed(before: str, after: str) -> list[list[int]]:
    """Return for each word of `before` the words of `after` that it became."""
    kept = [n for n, word in enumerate(WORD.findall(after)) if not INSERTED.fullmatch(word)]
    if before.startswith(after) or len(before.split()) != len(after.split()):
        return [[n] for n in kept] + [[]] * (len(WORD.findall(before)) - len(kept))
    # A typo may cut a word with punctuation in other parts.
    result, first = [], 0
    for old, new in zip(before.split(), after.split(), strict=True):
        parts, own = len(WORD.findall(old)), [*range(first, first + len(WORD.findall(new)))]
        result += [[n] for n in own] if len(own) == parts else [own] * parts
        first += len(own)
    return result


def expected(before: Sequence[str], after: Sequence[str], links: set[Link]) -> set[Link]:
    """Return the links between the words of a changed pair, given those of the pair before."""
    words = [WORD.findall(side) for side in after]
    source, target = map(followed, before, after)
    found = {(s, t) for one, other in links for s in source[one] for t in target[other]}
    noise = ([n for n, word in enumerate(side) if re.fullmatch(NOISE, word)] for side in words)
    found.update(zip(*noise, strict=True))
    return found | {(n, words[1].index(word)) for n, word in enumerate(words[0]) if SYMBOL.fullmatch(word)}


def aligned(tmp_path: Path, make: Make, write_pairs: WritePairs, *settings: str) -> Dataset:
    pairs = [(pair.en, pair.de) for pair in corpus("train", PAIRS, seed=1)]
    text = write_pairs(tmp_path / "text", pairs)
    make(tmp_path / "out", [text], "corpus.align=true", *settings)
    return open_dataset(tmp_path / "out")


@pytest.mark.parametrize(
    ("settings", "sampling"),
    [
        (
            (
                "tokenizer.kind=sentencepiece",
                "tokenizer.sentencepiece_model=unigram",
                "tokenizer.vocab_size=800",
            ),
            SamplingConfig(source=0.5, target=0.5),
        ),
        (("tokenizer.kind=bpe",), SamplingConfig(source=0.2)),
    ],
    ids=["unigram", "bpe"],
)
def test_links_are_those_of_the_changed_text(
    tmp_path: Path, make: Make, write_pairs: WritePairs, settings: Sequence[str], sampling: SamplingConfig
) -> None:
    symbols = (
        "tokenizer.placeholders=4",
        "tokenizer.terms=true",
        "tokenizer.byte_fallback=true",
        "tokenizer.vocab_size=800",
    )
    dataset = aligned(tmp_path, make, write_pairs, *symbols, *settings)
    (tmp_path / "terms.tsv").write_text("".join(f"{en}\t{de}\n" for en, de in TERMS.items()))
    augment = AugmentConfig(**SHARES, placeholders=0.15, terms=0.15, terms_file=str(tmp_path / "terms.tsv"))
    tokenizers = load_tokenizers(dataset.folder / TOKENIZERS)
    changes = EpochChanges(sampling, augment, seed=1, linked=True)
    with closing(Resegmented(dataset, tokenizers, changes, tmp_path / "epochs", workers=1)) as epochs:
        split = epochs.split(0)
    plain = dataset.splits["train"]
    word_links, token_links = links_of(plain.word_links), links_of(split.links)
    lines = zip(*(train_lines(dataset.folder, side) for side in SIDES), strict=True)
    tokens = zip(*map(ids_of, (split.source, split.target)), strict=True)
    changed = linked = 0
    for before, ids, links, found in zip(lines, tokens, word_links, token_links, strict=True):
        after = [
            words_of_tokens(tokenizers.side(side), own[:-1]) for side, own in zip(SIDES, ids, strict=True)
        ]
        (source, sources), (target, targets) = after
        of_words = expected(before, (source, target), links)
        wanted = {
            (s, t)
            for s, one in enumerate(sources)
            for t, other in enumerate(targets)
            if (one, other) in of_words
        }
        assert found == wanted, (before, source, target)
        changed += (source, target) != before
        linked += len(wanted)
    assert changed > 0.6 * len(word_links) and linked > 3 * len(word_links)
