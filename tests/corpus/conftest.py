"""Reading of a whole corpus."""

from pathlib import Path

from nmt_cli.corpus.config import CorpusConfig
from nmt_cli.corpus.parallel import Corpus, PairBlock, find


def pairs(corpus: Corpus, size: int = 1000) -> list[tuple[bytes, bytes]]:
    return [pair for block in corpus.blocks(size) for pair in zip(block.sources, block.targets, strict=True)]


def block(path: Path, **config: str) -> PairBlock:
    """Return all pairs of an English-German corpus, after a check of their number."""
    corpus = find(str(path), "en", "de", CorpusConfig(**config))  # type: ignore[arg-type]
    blocks = list(corpus.blocks(10_000))
    assert corpus.count() == sum(len(result.sources) for result in blocks)
    return blocks[0]
