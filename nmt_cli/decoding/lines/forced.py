"""What a model thinks of translations that are given: the log-probability of each of their tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.checkpoints.run_folder import find_model
from nmt_cli.decoding.config import InputConfig
from nmt_cli.decoding.lines.long_lines import longest_source
from nmt_cli.machine.devices import first_devices
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import flat
from nmt_cli.scoring.perplexity import perplexity
from nmt_cli.scoring.texts import read_hypotheses, refuse_second_stdin, refuse_unequal

Pair = tuple[Sequence[int], Sequence[int]]
"""Source and target as ids, without end marks."""

TOKENS = 2048
"""Source plus target tokens that are worked on at a time."""


@dataclass(frozen=True, slots=True)
class Forced:
    """The scores of a text."""

    tokens: Sequence[Sequence[str]]
    """The pieces of each line, end marks among them."""

    token_scores: Sequence[Sequence[float]]
    words: int
    """What stands between blanks, and each end of a line."""

    warnings: Sequence[str]

    @property
    def log_probabilities(self) -> list[float]:
        """Of each line."""
        return [sum(scores) for scores in self.token_scores]

    @property
    def perplexity(self) -> float:
        """Of a piece; end marks are counted."""
        return perplexity(-sum(self.log_probabilities), sum(map(len, self.token_scores)))

    @property
    def word_perplexity(self) -> float:
        """Of a word; ends of lines are counted."""
        return perplexity(-sum(self.log_probabilities), self.words)


def force(model: Path, source: Path, hypotheses: Path) -> Forced:
    """Score the lines of `hypotheses` as translations of the lines of `source`."""
    refuse_second_stdin([source, hypotheses])
    sources, targets = read_hypotheses(source), read_hypotheses(hypotheses)
    refuse_unequal(targets, sources)
    loaded = read_model(find_model(model), first_devices("auto", 1)[0])
    tokenizers = loaded.identity.tokenizers
    sides = ((tokenizers.source, sources), (tokenizers.target, targets))
    ids = [[side.encode(side.prepare(line)) for line in text.lines] for side, text in sides]
    written = tokenizers.target.vocabulary
    trained = loaded.identity.trained_on.get("longest")
    longest = longest_source(InputConfig(), loaded.identity.config, trained)
    return Forced(
        tokens=[[written.entries[i] for i in written.ended(target)] for target in ids[1]],
        token_scores=token_scores(loaded.transformer, list(zip(*ids, strict=True))),
        words=sum(len(line.split()) + 1 for line in targets.lines),
        warnings=list(_warnings(sources.name, ids[0], longest)),
    )


def _warnings(name: str, sources: Sequence[Sequence[int]], longest: int) -> Iterator[str]:
    long = [number for number, ids in enumerate(sources, start=1) if len(ids) > longest]
    if long:
        yield (
            f"{name}: {len(long):,} of {len(sources):,} lines have more than the {longest:,} pieces that nmt "
            f"translate takes at once (the first is line {long[0]:,}); they are scored whole, not in the "
            "parts that it would translate."
        )


@torch.inference_mode()
def token_scores(model: Transformer, pairs: Sequence[Pair]) -> list[list[float]]:
    """For each pair the log-probability of each target token, and of the end mark."""
    found: dict[int, list[float]] = {}
    for part in _batches(pairs):
        some = [pairs[number] for number in part]
        source_S, source = flat([model.source_vocabulary.ended(pair[0]) for pair in some], model.device)
        target_T, target = flat([model.target_vocabulary.ended(pair[1]) for pair in some], model.device)
        decoded_TD = model(source_S, target_T, source, target)
        logits_TV = model.logits(decoded_TD).float()
        scores_T = logits_TV.log_softmax(-1).gather(1, target_T[:, None])[:, 0].tolist()
        for number, tokens in zip(part, target.slices(), strict=True):
            found[number] = scores_T[tokens]
    return [found[number] for number in range(len(pairs))]


def _batches(pairs: Sequence[Pair]) -> Iterator[list[int]]:
    """Numbers of pairs of like length, at least one pair at a time."""
    batch: list[int] = []
    tokens = 0
    for number in sorted(range(len(pairs)), key=lambda i: len(pairs[i][1])):
        more = len(pairs[number][0]) + len(pairs[number][1]) + 2
        if batch and tokens + more > TOKENS:
            yield batch
            batch, tokens = [], 0
        batch.append(number)
        tokens += more
    if batch:
        yield batch
