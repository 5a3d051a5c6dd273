"""Train small Transformers on Multi30k for experiments that change a model from outside, without a setting.

The text is English to German, lower-cased and tokenised (`tok/` in `$NMT_DATA/multi30k`). A word is a token,
and rare words are unknown. Losses are means per target token, end tokens included, without label smoothing.
"""

import gzip
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from nmt_cli.text.vocabulary import Vocabulary

Pair = tuple[list[int], list[int]]
"""The ids of a source sentence and of its translation, each with the end token."""

END, UNKNOWN = 0, 1
ENTRIES = 1000
BATCH_TOKENS = 1000
WARMUP = 100


@dataclass(frozen=True, slots=True)
class Corpus:
    """Pairs of sentences, and the vocabulary of each side."""

    train: list[Pair]
    valid: list[Pair]
    source: Vocabulary
    target: Vocabulary


def read_corpus(folder: Path | None = None, entries: int = ENTRIES) -> Corpus:
    """Return Multi30k with the most frequent words as vocabulary. Exit if the text is missing."""
    folder = folder or Path(os.environ.get("NMT_DATA", "."), "multi30k")
    sides = []
    for language in ("en", "de"):
        train, valid = (
            _lines(folder / "tok" / f"{name}.lc.norm.tok.{language}") for name in ("train", "valid")
        )
        counts = Counter(word for line in train for word in line.split())
        words = [word for word, _ in counts.most_common(entries - 2)]
        ids = {word: i for i, word in enumerate(words, start=2)}
        vocabulary = Vocabulary(("</s>", "<unk>", *words), end=END, start=END, unknown=UNKNOWN)
        encoded = [
            [[*(ids.get(w, UNKNOWN) for w in line.split()), END] for line in s] for s in (train, valid)
        ]
        sides.append((encoded, vocabulary))
    (source, source_words), (target, target_words) = sides
    train_pairs, valid_pairs = (list(zip(source[i], target[i], strict=True)) for i in range(2))
    return Corpus(train_pairs, valid_pairs, source_words, target_words)


def _lines(path: Path) -> list[str]:
    for file, opened in ((path, open), (path.with_name(f"{path.name}.gz"), gzip.open)):
        if file.exists():
            with opened(file, "rt", encoding="utf-8") as lines:
                return list(lines)
    sys.exit(f"Error: {path} does not exist. Make it with recipes/multi30k/corpus.sh, and set NMT_DATA.")


def new_model(corpus: Corpus, config: ModelConfig, seed: int) -> Transformer:
    """Return a random model for the vocabularies of a corpus."""
    torch.manual_seed(seed)
    return Transformer(config, corpus.source, corpus.target, joint=False)


def batches(pairs: Sequence[Pair], seed: int) -> Iterator[list[Pair]]:
    """Yield batches of about `BATCH_TOKENS` target tokens without end, of sentences of similar length."""
    draws = random.Random(seed)
    while True:
        order = sorted(pairs, key=lambda pair: (len(pair[1]), draws.random()))
        groups, group, tokens = [], list[Pair](), 0
        for pair in order:
            group.append(pair)
            tokens += len(pair[1])
            if tokens >= BATCH_TOKENS:
                groups.append(group)
                group, tokens = [], 0
        draws.shuffle(groups)
        # The rest of an epoch is left out, because a much smaller batch would have a noisier gradient.
        yield from groups or [group]


def loss_of(model: Transformer, pairs: Sequence[Pair]) -> Tensor:
    """Return the mean negative log-likelihood per target token of some pairs, in one batch."""
    source, target = (torch.tensor([token for pair in pairs for token in pair[side]]) for side in (0, 1))
    layouts = [Layout.of([len(pair[side]) for pair in pairs]) for side in (0, 1)]
    return F.cross_entropy(model.logits(model(source, target, *layouts)), target)


@torch.no_grad()
def valid_loss(model: Transformer, pairs: Sequence[Pair]) -> float:
    """Return the mean negative log-likelihood per target token of all pairs."""
    model.eval()
    total = count = 0.0
    for begin in range(0, len(pairs), 64):
        part = pairs[begin : begin + 64]
        tokens = sum(len(target) for _, target in part)
        total += float(loss_of(model, part)) * tokens
        count += tokens
    model.train()
    return total / count


def train(
    model: Transformer,
    pairs: Sequence[Pair],
    steps: int,
    seed: int,
    peak: float = 0.003,
    after_step: Callable[[int], None] = lambda step: None,
) -> None:
    """Train with Adam: linear warm-up to `peak`, then linear decay to 0. `after_step` sees the gradients."""
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    model.train()
    for step, batch in zip(range(1, steps + 1), batches(pairs, seed), strict=False):
        rate = peak * min(step / WARMUP, (steps - step + 1) / max(1, steps - WARMUP))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss_of(model, batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        after_step(step)
