"""The choice among the hypotheses of a sentence, by agreement with each other or by a scorer."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.errors import UserError
from nmt_cli.scoring.command import CommandScorer
from nmt_cli.scoring.neural.comet import Comet
from nmt_cli.translation.lines import FinishedLine
from nmt_cli.translation.text.consensus import Alternatives, Numbers, expected_scores

Scorer = Comet | CommandScorer


def check_scorer(search: SearchConfig, scorer: Scorer | None) -> None:
    """Raise `UserError` if `scorer` does not suit the settings.

    Minimum Bayes risk by COMET needs a `Comet` that has references and encodes each sentence alone. Reranking
    needs a scorer without references, and more than one hypothesis.
    """
    comet = scorer if isinstance(scorer, Comet) else None
    name = f"the COMET model {comet.kind}" if comet else "a command" if scorer else "none"
    if search.mbr.startswith("comet"):
        if not comet or not _fits_mbr(comet):
            raise UserError(
                f"search.mbr={search.mbr} needs --metric-model FOLDER with a COMET model with "
                f"references that encodes each sentence alone, such as wmt22-comet-da (got {name})."
            )
    elif scorer and search.mbr != "off":
        raise UserError(f"search.mbr={search.mbr} and --rerank both choose among translations. Use one.")
    elif comet and comet.needs_reference:
        other = "Set search.mbr=comet, or use" if _fits_mbr(comet) else "Use"
        raise UserError(f"--rerank: {name} needs references. {other} one without, such as COMETKiwi.")
    elif scorer and search.slots == 1:
        size = "--beam" if search.has_beam else "--n-best"
        raise UserError(f"--rerank chooses among several translations. Raise {size} to 2 or more.")


def waits_for_mbr(search: SearchConfig, scorer: Scorer | None) -> bool:
    """Return whether `scorer` fits only minimum Bayes risk by COMET, which later settings may request."""
    return search.mbr == "off" and isinstance(scorer, Comet) and _fits_mbr(scorer)


def _fits_mbr(comet: Comet) -> bool:
    return comet.has_vectors and comet.needs_reference


def searched(search: SearchConfig, scorer: Scorer | None) -> SearchConfig:
    """Return the settings of the search, which returns all hypotheses of the beam if `scorer` ranks them."""
    return replace(search, n_best=search.slots) if scorer else search


def ranked(
    lines: Sequence[FinishedLine],
    search: SearchConfig,
    scorer: Scorer | None,
    text: Callable[[Sentence, Hypothesis], str],
) -> list[FinishedLine]:
    """Return `lines` with the best hypotheses of each sentence, best first, as `rank` returns them.

    All sentences are ranked together, since a scorer is faster with many. `text` gives the text of a
    hypothesis.
    """
    alternatives = [
        Alternatives(sentence.raw, part, [text(sentence, each) for each in part])
        for line, parts in lines
        for sentence, part in zip(line.sentences, parts, strict=True)
        if part
    ]
    best = iter(rank(alternatives, search, scorer))
    return [(line, [next(best) if part else part for part in parts]) for line, parts in lines]


def rank(
    sentences: Sequence[Alternatives], search: SearchConfig, scorer: Scorer | None
) -> list[list[Hypothesis]]:
    """Return the `search.n_best` best hypotheses of each sentence, best first, with their `rank_score`.

    It is the expected score for minimum Bayes risk, else that of `scorer` given the source.
    """
    if not sentences:
        return []
    if search.mbr == "off":
        assert scorer
        scores = _scores(sentences, scorer)
    else:
        scores = expected_scores(sentences, search, scorer if isinstance(scorer, Comet) else None)
    best = []
    for one, scores_N in zip(sentences, scores, strict=True):
        # The sort is stable: among equal hypotheses the better score of the model is first.
        order = np.argsort(-scores_N, kind="stable")[: search.n_best]
        best.append([replace(one.hypotheses[i], rank_score=float(scores_N[i])) for i in order])
    return best


def _scores(sentences: Sequence[Alternatives], scorer: Scorer) -> list[Numbers]:
    """Return the score of each hypothesis by `scorer`, [N] for each sentence. Score equal pairs once."""
    pairs = [*dict.fromkeys((one.source, text) for one in sentences for text in one.texts)]
    sources, texts = ([*column] for column in zip(*pairs, strict=True))
    score_of = dict(zip(pairs, scorer.score(sources, texts, None), strict=True))
    return [np.array([score_of[one.source, text] for text in one.texts]) for one in sentences]
