"""Minimum Bayes risk: of many translations of a sentence, those come first that agree most with all of them.

What a translation is worth is its score with each of the list as the reference, weighted by how likely that
one is.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis
from nmt_cli.decoding.search.lengths import LengthRule

Numbers = npt.NDArray[np.float64]

BLEU_ORDER, CHRF_ORDER, CHRF_BETA = 4, 6, 2


def agreed(
    hypotheses: Sequence[Hypothesis], search: SearchConfig, text: Callable[[Hypothesis], str]
) -> list[Hypothesis]:
    """The `n_best` of `hypotheses`, best first, that agree most with all of them in what `search.mbr` names;
    `text` tells what one says."""
    if search.mbr == "off":
        return list(hypotheses)
    if search.mbr == "chrf":
        worth_NN = chrf([[*map(ord, "".join(text(one).split()))] for one in hypotheses])
    else:
        worth_NN = bleu([one.tokens for one in hypotheses])
    expected_N = worth_NN @ shares(hypotheses, search)
    order = np.argsort(-expected_N, kind="stable")[: search.n_best]  # of equals, the better score first
    return [hypotheses[i] for i in order]


def shares(hypotheses: Sequence[Hypothesis], search: SearchConfig) -> Numbers:
    """[N]: how likely each is, if it is one of these. What was drawn counts as often as it was."""
    if search.sample:
        return np.full(len(hypotheses), 1 / len(hypotheses))
    scores_N = np.array([one.score for one in hypotheses])
    # As if all were as long as the first: what length costs is in the scores already.
    length = torch.tensor(len(hypotheses[0].tokens) + 1)
    divided = LengthRule(search.length_rule, search.length_penalty).score(torch.tensor(1.0), length)
    likely_N: Numbers = np.exp((scores_N - scores_N.max()) / float(divided))
    likely_N /= likely_N.sum()
    return likely_N


def bleu(rows: Sequence[Sequence[int]]) -> Numbers:
    """[N, N]: the BLEU of each of `rows` with each as the reference, of n-grams up to four, where longer ones
    than one count one match more than there is."""
    lengths_N = np.array([len(row) for row in rows], float)
    logs_NN = np.minimum(0.0, 1.0 - lengths_N / np.maximum(lengths_N, 1.0)[:, None])
    for order, (matches_NN, counts_N) in enumerate(_ngrams(rows, BLEU_ORDER), start=1):
        more = order > 1
        with np.errstate(divide="ignore"):  # the logarithm of no match is -inf, and its BLEU 0
            share_NN = (matches_NN + more) / np.maximum(counts_N + more, 1.0)[:, None]
            logs_NN = logs_NN + np.log(share_NN) / BLEU_ORDER
    worth_NN: Numbers = np.exp(logs_NN)
    return worth_NN


def chrf(rows: Sequence[Sequence[int]]) -> Numbers:
    """[N, N]: the chrF2 of each of `rows` with each as the reference; precision and recall are means over the
    orders, up to six, that both have n-grams of."""
    found = [(matches_NN, counts_N[:, None]) for matches_NN, counts_N in _ngrams(rows, CHRF_ORDER)]
    both = [(counts_N1 > 0) & (counts_N1.T > 0) for _, counts_N1 in found]
    orders_NN = np.maximum(sum(each.astype(float) for each in both), 1.0)
    precision_NN = sum(m / np.maximum(c, 1.0) * b for (m, c), b in zip(found, both, strict=True)) / orders_NN
    recall_NN = sum(m / np.maximum(c.T, 1.0) * b for (m, c), b in zip(found, both, strict=True)) / orders_NN
    weighted_NN = np.maximum(CHRF_BETA**2 * precision_NN + recall_NN, 1e-16)
    worth_NN: Numbers = (1 + CHRF_BETA**2) * precision_NN * recall_NN / weighted_NN
    return worth_NN


def _ngrams(rows: Sequence[Sequence[int]], most: int) -> Iterator[tuple[Numbers, Numbers]]:
    """For n-grams of 1 to `most`: [N, N] how many of each of `rows` each other has too, and [N] how many it
    has."""
    owners_T = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    units_T = np.unique(np.concatenate([np.asarray(row, np.int64) for row in rows]), return_inverse=True)[1]
    grams_T = units_T
    for order in range(1, most + 1):
        if order > 1:  # those across the end of a row are named too, but not counted
            longer_T = grams_T[:-1] * (len(units_T) + 1) + units_T[order - 1 :]
            grams_T = np.unique(longer_T, return_inverse=True)[1]
        owner_T, end_T = owners_T[: len(grams_T)], owners_T[order - 1 :]
        width = int(grams_T.max(initial=0)) + 1
        places_T = (owner_T * width + grams_T)[owner_T == end_T]
        counted = np.bincount(places_T, minlength=len(rows) * width).astype(np.int32)
        counts_NV = counted.reshape(len(rows), width)
        matches = [np.minimum(counts_NV, counts_V).sum(1) for counts_V in counts_NV]
        yield np.stack(matches, 1).astype(float), counts_NV.sum(1).astype(float)
