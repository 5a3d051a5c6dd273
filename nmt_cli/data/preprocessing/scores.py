"""Scores of the training pairs by the command in `filter.scorer`.

The command reads a corpus in order, so this happens in the main process, before workers clean the pairs.
"""

from collections.abc import Iterator
from contextlib import closing
from itertools import islice

import numpy as np

from nmt_cli.corpus.parallel import Corpus
from nmt_cli.data.array_files import ArrayWriter
from nmt_cli.data.preprocessing.parts import SCORES, scored_corpus, written_whole
from nmt_cli.data.preprocessing.training_set import BLOCK_PAIRS, Run


def score_corpora(run: Run) -> None:
    """Write the scores of all pairs to the work folder, for each training corpus with a scorer. Scores that
    an interrupted run has written are kept. Raise `UserError` if a scorer fails."""
    for owner, item in enumerate(run.training):
        filters, folder = item.filter(run.config), scored_corpus(run.work, owner)
        if not filters.scorer or folder.exists():
            continue
        assert run.job.score
        rows = _rows(item.corpus)
        with (
            closing(run.job.score(filters.scorer, rows, item.pairs)) as scores,
            written_whole(folder) as staging,
            ArrayWriter(staging / SCORES, np.float64) as writer,
        ):
            while block := list(islice(scores, BLOCK_PAIRS)):
                writer.append(np.array(block))
                run.progress("scoring", writer.length, item.pairs)


def _rows(corpus: Corpus) -> Iterator[dict[str, str]]:
    """Yield each raw pair in the form that a scorer reads. Invalid UTF-8 becomes U+FFFD."""
    for block in corpus.blocks(BLOCK_PAIRS):
        for pair in zip(block.sources, block.targets, strict=True):
            source, target = (side.decode(errors="replace") for side in pair)
            yield {"src": source, "mt": target}
