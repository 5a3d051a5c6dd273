"""COMET: the quality of translations, estimated by a multilingual encoder and a regression.

COMET and its first reference-free form encode each sentence alone. COMETKiwi and xCOMET encode a translation
together with its source, its reference, or both. xCOMET also labels the tokens of the translation as errors.
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
"""The classes that encode each sentence alone, with the number of vectors that their regression takes."""

BLOCK = 2048
"""The number of translations whose vectors are in memory at a time."""

LABEL_WEIGHTS, SCORE_WEIGHTS, ERRORS_WEIGHT = (0.1667, 0.3333, 0.5), (0.12, 0.33, 0.33), 0.22
"""The weights of xCOMET. Labels and scores have three: with the source, with the reference, and with both.
The last one is for the errors that the labels mark."""

PENALTIES, MAX_PENALTY = (0, 1, 5, 10), 25
"""The penalties of xCOMET by the label of an error: none, minor, major, critical. Their sum is limited."""


class Comet:
    """A COMET model on one device."""

    def __init__(
        self,
        folder: str | PathLike[str],
        device: str | torch.device = "auto",
        report: Progress | None = None,
    ) -> None:
        """Load a model.

        - `folder`: the model's folder, as comet-score or the Hugging Face Hub downloads it.
        - `device`: auto, cpu, cuda or cuda:N.
        - `report`: called during `score`, with "comet", the translations done, and their total.

        Raise `UserError` if the folder cannot be read, or its parts do not fit together.
        """
        files = read_comet(Path(folder))
        self.name, self.kind = "COMET", files.name
        self._tokenizer = files.tokenizer
        self._network = Network(files, VECTORS.get(files.kind, 1), usable_devices(device)[0])
        segments = str(files.options["input_segments"])
        self._source, self._reference = "src" in segments, "ref" in segments
        self.has_vectors = files.kind in VECTORS
        """True if the model encodes each sentence alone, so that `embed` and `estimate` work."""

        self.needs_reference = self._reference and (files.kind == "regression_metric" or not self._source)
        """True if the model cannot score without references."""

        self._details = f"sha256:{files.digest[:12]}|layers:{files.options['layer_transformation']}"
        self._report = report or (lambda stage, done, total: None)

    def signature(self, references: int) -> str:
        """Return what is needed to reproduce a score with this number of references."""
        used = min(references, int(self._reference))
        return f"comet:{self.kind}|refs:{used}|{self._details}|version:nmt-{__version__}"

    def score(self, sources: Texts | None, hypotheses: Texts, references: Texts | None) -> list[float]:
        """Return the score of each hypothesis, mostly from 0 to 1.

        Texts that the model does not use are ignored. Raise `UserError` if one that it needs is None. Equal
        sentences are encoded once in each `BLOCK` of hypotheses.
        """
        if self._source and sources is None:
            raise UserError(f"{self.kind} compares translations with their source. Give it with --source.")
        if self.needs_reference and references is None:
            raise UserError(f"{self.kind} needs a reference. Give it with --reference.")
        compared = [sources if self._source else None, references if self._reference else None]
        used = [hypotheses, *(texts for texts in compared if texts is not None)]
        # In blocks, because vectors of all sentences would fill the memory. Only within a block are equal
        # ones computed once.
        scores = list[float]()
        for start in range(0, len(hypotheses), BLOCK):
            block = [texts[start : start + BLOCK] for texts in used]
            scores += self._scores(block, start, len(hypotheses)).tolist()
        return scores

    def on(self, device: torch.device) -> AbstractContextManager[None]:
        """Return a context in which the model runs on `device`. Its memory there is free again at the end."""
        return self._network.on(device)

    def embed(self, sentences: Texts) -> Tensor:
        """Return the vectors of sentences, [sentences, width], for `estimate`. Raise `UserError` if the model
        does not encode sentences alone."""
        if not self.has_vectors:
            raise UserError(f"{self.kind} encodes pairs of sentences, so it has no vectors of sentences.")
        return self._network.encode(self._tokens(sentences), lambda share: None)[0]

    def estimate(self, hypotheses: Tensor, sources: Tensor, references: Tensor | None = None) -> Tensor:
        """Return the score of each row of vectors from `embed`, [rows]. `references` is None for a model that
        does not use them."""
        # The regression was trained with its vectors in this order.
        compared = [sources] if references is None else [references, sources]
        parts = [hypotheses, compared[0]]
        for other in compared:
            parts += [hypotheses * other, (hypotheses - other).abs()]
        return self._network.regress(torch.cat(parts, 1))

    def _scores(self, texts: Sequence[Texts], start: int, total: int) -> Tensor:
        """Return the scores of a block of hypotheses.

        - `texts`: the hypotheses, and the texts with which they are compared.
        - `start`: the number of the first hypothesis, for reports.
        - `total`: the number of hypotheses in all blocks, for reports.
        """
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
        """Return the tokens of each text with those of start and end, cut to the length that COMET allows."""
        known = {text: self._tokenizer.encode(text)[: self._network.max_tokens - 4] for text in set(texts)}
        return [(START, *known[text], END) for text in texts]

    def _joined(self, parts: Sequence[Tokens]) -> Tokens:
        """Return several sentences as one sequence for the encoder, cut to the length that it allows."""
        # Without the start and end tokens of each, of which the whole sequence has its own.
        inner = [[token for token in part[1:-1] if token != PADDING] for part in parts]
        joined = [START, *inner[0]]
        for part in inner[1:]:
            joined += [END, END, *part]
        return (*joined, END)[: self._network.max_tokens]


def _marks(labels: Sequence[Tensor], weights: Sequence[float], length: int) -> float:
    """Return xCOMET's score of the errors in a translation, from 0 to 1.

    - `labels`: the probabilities of labels for each input that contains the translation, [tokens, labels].
    - `weights`: the weight of each input.
    - `length`: the number of tokens of the translation, which come first.
    """
    length = min(length, *map(len, labels))
    parts = [weight * each[:length, : len(PENALTIES)] for weight, each in zip(weights, labels, strict=True)]
    penalty = severity = 0
    for label in torch.stack(parts).sum(0).argmax(1).tolist():
        # The first label of a span is that of the error, which counts if the span ends.
        penalty += 0 if label else PENALTIES[severity]
        severity = (severity or label) if label else 0
    return 1 - min(penalty, MAX_PENALTY) / MAX_PENALTY
