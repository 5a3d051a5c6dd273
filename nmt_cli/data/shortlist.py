"""Learn the shortlist of a model from a dataset with alignments."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.dataset import LINK_BITS, TOKENIZERS, TRAIN, Dataset
from nmt_cli.errors import UserError
from nmt_cli.text.shortlist import Shortlist, shortlist_of, with_copies
from nmt_cli.text.tokenizers import Tokenizers, load_tokenizers

UNLINKED = 100
"""The number of target tokens that every sentence may use: those that are most often linked to no source
token, such as articles. No list of a source token would have them. Of equals, the most frequent come
first."""

BEST = 50
"""The maximum number of target tokens for a source token."""

PAIRS_AT_ONCE = 100_000

Numbers = NDArray[np.int64]


def learned(dataset: Dataset, tokenizers: Tokenizers, model: Path) -> Shortlist:
    """Return for each source token the target tokens that it is most often linked to in the training set.

    `tokenizers` are those of the model in the folder `model`. Raise `UserError` if the dataset has others, or
    no alignments.
    """
    split, entries = dataset.splits[TRAIN], len(tokenizers.target.vocabulary)
    if load_tokenizers(dataset.folder / TOKENIZERS).fingerprint != tokenizers.fingerprint:
        raise UserError(
            f"{dataset.folder} has other subwords than {model}. "
            f"Make one with nmt preprocess --reuse-tokenizer {model} --set corpus.align=true."
        )
    if split.links is None:
        raise UserError(
            f"{dataset.folder} has no alignments. Make it again with nmt preprocess --set corpus.align=true."
        )
    frequent, unlinked = np.zeros((2, entries), np.int64)
    keys, counts = np.zeros((2, 0), np.int64)
    for first in range(0, len(split), PAIRS_AT_ONCE):
        end = min(first + PAIRS_AT_ONCE, len(split))
        (source, of_source), (target, of_target), (links, of_links) = (
            (one.tokens[one.offsets[first] : one.offsets[end]].astype(np.int64), one.offsets[first : end + 1])
            for one in (split.source, split.target, split.links)
        )
        pair_of_link = np.repeat(np.arange(end - first), np.diff(of_links))
        starts = ((of - of[0])[pair_of_link] for of in (of_source, of_target))
        numbers = links & (1 << LINK_BITS) - 1, links >> LINK_BITS
        at_source, at_target = (start + number for start, number in zip(starts, numbers, strict=True))
        keys, counts = _added(keys, counts, source[at_source] * entries + target[at_target])
        is_unlinked = np.ones(len(target), np.bool_)
        is_unlinked[at_target] = False
        frequent += np.bincount(target, minlength=entries)
        unlinked += np.bincount(target[is_unlinked], minlength=entries)
    sources, targets = np.divmod(keys, entries)
    order = np.lexsort((-counts, sources))
    sources, targets = sources[order], targets[order]
    # The first of each source token has rank 0.
    ranks = np.arange(len(sources)) - np.searchsorted(sources, sources)
    lists: list[list[int]] = [[] for _ in tokenizers.source.vocabulary.entries]
    for token, other in zip(sources[ranks < BEST].tolist(), targets[ranks < BEST].tolist(), strict=True):
        lists[token].append(other)
    lists[tokenizers.source.vocabulary.end] += np.lexsort((-frequent, -unlinked))[:UNLINKED].tolist()
    return shortlist_of(with_copies(lists, tokenizers.source.vocabulary, tokenizers.target.vocabulary))


def _added(keys: Numbers, counts: Numbers, more: Numbers) -> tuple[Numbers, Numbers]:
    """Return ascending keys and their counts, after counting each of `more` once."""
    new, new_counts = np.unique(more, return_counts=True)
    every, places = np.unique(np.concatenate([keys, new]), return_inverse=True)
    return every, np.bincount(places, np.concatenate([counts, new_counts])).astype(np.int64)
