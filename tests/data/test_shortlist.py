"""The shortlist that a dataset with alignments teaches, against plain counting."""

from collections import Counter
from pathlib import Path

import pytest

from nmt_cli.data import shortlist as module
from nmt_cli.data.dataset import LINK_BITS, open_dataset
from nmt_cli.data.shortlist import learned
from nmt_cli.text.tokenizers import load_tokenizers
from tests.checks import refusal
from tests.data.corpora import Make, ids_of


@pytest.mark.parametrize("joint", ["true", "false"])
def test_the_targets_that_a_token_is_linked_to_most_often_are_listed(
    tmp_path: Path, make: Make, toy: str, monkeypatch: pytest.MonkeyPatch, joint: str
) -> None:
    monkeypatch.setattr(module, "PAIRS_AT_ONCE", 7)
    monkeypatch.setattr(module, "BEST", 3)
    monkeypatch.setattr(module, "UNLINKED", 4)
    make(tmp_path / "out", [toy], "corpus.align=true", f"tokenizer.joint={joint}")
    dataset, tokenizers = open_dataset(tmp_path / "out"), load_tokenizers(tmp_path / "out" / "tokenizer")
    source, target = tokenizers.source.vocabulary, tokenizers.target.vocabulary
    split = dataset.splits["train"]
    assert split.links
    counts: dict[int, Counter[int]] = {token: Counter() for token in range(len(source))}
    frequent: Counter[int] = Counter()
    unlinked: Counter[int] = Counter()
    for one, other, links in zip(*map(ids_of, (split.source, split.target, split.links)), strict=True):
        frequent.update(other)
        linked = {link >> LINK_BITS for link in links}
        unlinked.update(token for place, token in enumerate(other) if place not in linked)
        for link in links:
            counts[one[link & (1 << LINK_BITS) - 1]][other[link >> LINK_BITS]] += 1
    actual = learned(dataset, tokenizers, Path("model"))
    for token, text in enumerate(source.entries):
        listed = {*actual.list_of(token).tolist()}
        same = {target.entries.index(text)} if text and text in target.entries else set()
        ranked = sorted(counts[token].values(), reverse=True)[:3]
        if token == source.end:
            most = sorted(((unlinked[one], frequent[one]) for one in range(len(target))), reverse=True)[:4]
            assert sorted(((unlinked[one], frequent[one]) for one in listed), reverse=True)[:4] == most
            assert len(listed) <= 5
        else:
            assert same <= listed
            assert sorted((counts[token][one] for one in listed), reverse=True)[: len(ranked)] == ranked
            assert len(listed) <= len(ranked) + 1
    sentence = ids_of(split.source)[0]
    expected = {*(one for token in sentence for one in actual.list_of(token).tolist()), 5}
    assert actual.of(sentence, [5], len(target)).tolist() == sorted(expected)


def test_a_dataset_without_alignments_or_with_other_subwords_is_refused(
    tmp_path: Path, make: Make, toy: str, toy_dataset: Path
) -> None:
    tokenizers = load_tokenizers(toy_dataset / "tokenizer")
    assert refusal(learned, open_dataset(toy_dataset), tokenizers, Path("model")) == (
        f"{toy_dataset} has no alignments. Make it again with nmt preprocess --set corpus.align=true."
    )
    other = tmp_path / "other"
    make(other, [toy], "corpus.align=true", "text.lowercase=true")
    assert refusal(learned, open_dataset(other), tokenizers, Path("model")) == (
        f"{other} has other subwords than model. "
        "Make one with nmt preprocess --reuse-tokenizer model --set corpus.align=true."
    )
