"""COMET: the quality of translations, estimated by a multilingual encoder and a regression.

COMET and its first reference-free form encode each sentence alone. COMETKiwi and xCOMET encode a translation
together with its source, its reference, or both.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor

from nmt_cli import __version__
from nmt_cli.errors import UserError
from nmt_cli.runtime.devices import usable_devices
from nmt_cli.runtime.processes import Progress
from nmt_cli.scoring.neural.folder import read_comet
from nmt_cli.scoring.neural.network import Network, Tokens
from nmt_cli.scoring.scorers import Texts
from nmt_cli.text.subword_models.xlm_roberta import END, PADDING, START

VECTORS = {"regression_metric": 6, "referenceless_regression_metric": 4}
"""Classes that encode each sentence alone, with the number of vectors that the regression takes."""

BLOCK = 2048
"""Translations whose vectors are in memory at a time."""

LABEL_WEIGHTS, SCORE_WEIGHTS, ERRORS_WEIGHT = (0.1667, 0.3333, 0.5), (0.12, 0.33, 0.33), 0.22
"""Weights in xCOMET of the labels and scores with source, reference and both, and of the marked errors."""

PENALTIES, MAX_PENALTY = (0, 1, 5, 10), 25
"""Penalties in xCOMET by the label of an error: none, minor, major, critical."""


class Comet:
    """A COMET model on one device."""

    def __init__(
        self,
        folder: str | PathLike[str],
        device: str | torch.device = "auto",
        report: Progress | None = None,
    ) -> None:
        """Load the model in `folder` on `device`: auto, cpu, cuda or cuda:N. `report` shows the progress of
        `score`.
        Raise `UserError` for a folder that `read_comet` refuses, or parts that don't fit together."""
        files = read_comet(Path(folder))
        self.name, self.kind = "COMET", files.name
        self._tokenizer = files.tokenizer
        self._network = Network(files, VECTORS.get(files.kind, 1), usable_devices(device)[0])
        segments = str(files.options["input_segments"])
        self._source, self._reference = "src" in segments, "ref" in segments
        self.has_vectors = files.kind in VECTORS
        """Whether the model encodes each sentence alone, so that `embed` works."""

        self.needs_reference = self._reference and (files.kind == "regression_metric" or not self._source)
        """Whether `score` and `estimate` need references."""

        self._details = f"sha256:{files.digest[:12]}|layers:{files.options['layer_transformation']}"
        self._report = report or (lambda stage, done, total: None)

    def signature(self, references: int) -> str:
        """Return what is needed to reproduce scores with this number of references."""
        used = min(references, int(self._reference))
        return f"comet:{self.kind}|refs:{used}|{self._details}|version:nmt-{__version__}"

    def score(self, sources: Texts | None, hypotheses: Texts, references: Texts | None) -> list[float]:
        """Return the score of each hypothesis, mostly from 0 to 1. Equal sentences are encoded once per
        `BLOCK`. Texts that the model does not use are ignored. Raise `UserError` if one that it needs is
        None. COMETKiwi and xCOMET need no references."""
        if self._source and sources is None:
            raise UserError(f"{self.kind} compares translations with their source. Give it with --source.")
        if self.needs_reference and references is None:
            raise UserError(f"{self.kind} needs a reference. Give it with --reference.")
        compared = [sources if self._source else None, references if self._reference else None]
        used = [hypotheses, *(texts for texts in compared if texts is not None)]
        scores = list[float]()
        for start in range(0, len(hypotheses), BLOCK):
            block = [texts[start : start + BLOCK] for texts in used]
            scores += self._scores(block, start, len(hypotheses)).tolist()
        return scores

    def on(self, device: torch.device) -> AbstractContextManager[None]:
        """Return a context in which the model runs on `device`, whose memory is free after it."""
        return self._network.on(device)

    def embed(self, sentences: Texts) -> Tensor:
        """Return the vectors of sentences, [sentences, width], for `estimate`. Raise `UserError` if the model
        does not encode each sentence alone."""
        if not self.has_vectors:
            raise UserError(f"{self.kind} encodes pairs of sentences, so it has no vectors of sentences.")
        return self._network.encode(self._tokens(sentences), lambda share: None)[0]

    def estimate(self, hypotheses: Tensor, sources: Tensor, references: Tensor | None = None) -> Tensor:
        """Return the score of each row of vectors from `embed`, [rows]. References are None for a model that
        does not use them."""
        compared = [sources] if references is None else [references, sources]
        parts = [hypotheses, compared[0]]
        for other in compared:
            parts += [hypotheses * other, (hypotheses - other).abs()]
        return self._network.regress(torch.cat(parts, 1))

    def _scores(self, texts: Sequence[Texts], start: int, total: int) -> Tensor:
        """Return the scores of texts: hypotheses, and what they are compared with. `start` is the number of
        the first of a `total`."""
        tokens = [self._tokens(each) for each in texts]
        size = len(tokens[0])

        def report(share: float) -> None:
            self._report("comet", start + int(share * size), total)

        if self.has_vectors:
            vectors, _ = self._network.encode([one for each in tokens for one in each], report)
            return self.estimate(*vectors.chunk(len(tokens)))
        pairs = [(0, 1)] if len(tokens) == 2 else [(0, 1), (0, 2), (0, 1, 2)]
        inputs = [self._joined([tokens[i][row] for i in pair]) for row in range(size) for pair in pairs]
        vectors, labels = self._network.encode(inputs, report)
        scores = self._network.regress(vectors).view(size, len(pairs))
        if not labels:
            return scores.mean(1)
        several = len(pairs) > 1
        weights = torch.tensor(SCORE_WEIGHTS if several else [sum(SCORE_WEIGHTS)])
        of_rows = zip(*[iter(labels)] * len(pairs), strict=True)
        marks = [
            _marks(each, LABEL_WEIGHTS if several else (1.0,), len(hypothesis))
            for each, hypothesis in zip(of_rows, tokens[0], strict=True)
        ]
        return scores.clamp(max=1) @ weights + ERRORS_WEIGHT * torch.tensor(marks)

    def _tokens(self, texts: Texts) -> list[Tokens]:
        """Return the tokens of each text, cut to what COMET allows, with those of start and end."""
        known = {text: self._tokenizer.encode(text)[: self._network.max_tokens - 4] for text in set(texts)}
        return [(START, *known[text], END) for text in texts]

    def _joined(self, parts: Sequence[Tokens]) -> Tokens:
        """Return the sentences of an input as one sequence, cut to what the encoder allows."""
        inner = [[token for token in part[1:-1] if token != PADDING] for part in parts]
        joined = [START, *inner[0]]
        for part in inner[1:]:
            joined += [END, END, *part]
        return (*joined, END)[: self._network.max_tokens]


def _marks(labels: Sequence[Tensor], weights: Sequence[float], length: int) -> float:
    """Return the score of the errors that xCOMET marks, from 0 to 1. `labels` are probabilities of labels,
    [tokens, labels], for each input. The first `length` tokens are those of the translation."""
    length = min(length, *map(len, labels))
    parts = [weight * each[:length, : len(PENALTIES)] for weight, each in zip(weights, labels, strict=True)]
    penalty = severity = 0
    for label in torch.stack(parts).sum(0).argmax(1).tolist():
        # The first label of a span is that of the error, which counts if the span ends.
        penalty += 0 if label else PENALTIES[severity]
        severity = (severity or label) if label else 0
    return 1 - min(penalty, MAX_PENALTY) / MAX_PENALTY
