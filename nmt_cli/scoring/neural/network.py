"""The network of a COMET model: XLM-RoBERTa, a mix of its layers, pooling, and a regression.

A hidden state is the output of a layer for each token. The weighted sum of all layers' hidden states is
pooled to one vector per sentence. The regression turns vectors into a score.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from nmt_cli.errors import UserError
from nmt_cli.runtime.devices import is_gpu
from nmt_cli.scoring.neural.folder import CometFiles
from nmt_cli.text.subword_models.xlm_roberta import END, PADDING, START

CPU_TOKENS, GPU_TOKENS = 1024, 16384
"""The maximum number of tokens in a batch, with padding. Larger batches make a CPU slower, because their
states do not fit in its cache."""

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "none": lambda tensor: tensor,
}
MAX_REGRESSION = 100
"""The maximum number of modules in a regression."""

Tokens = tuple[int, ...]


class Network:
    """The network on one device. It turns sequences of tokens into vectors, and vectors into scores."""

    def __init__(self, files: CometFiles, vectors: int, device: torch.device) -> None:
        """Put the weights on `device`, and try the network once.

        - `files`: the content of the model's folder.
        - `vectors`: the number of vectors, side by side, that the regression takes.

        Raise `UserError` if a tensor is missing or has a wrong shape, or an option is unknown.
        """
        options, names = files.options, files.tensors
        self._tensors = {n.removeprefix("encoder.model."): one.to(device) for n, one in names.items()}
        self._heads, self._epsilon, self._device = files.heads, files.epsilon, device
        self._batch_tokens = GPU_TOKENS if is_gpu(device) else CPU_TOKENS
        # XLM-RoBERTa-XL normalises before each part of a layer, XLM-RoBERTa after it.
        self._is_pre_norm = "encoder.LayerNorm.weight" in self._tensors
        self._depth = next(n for n in count() if f"encoder.layer.{n}.output.dense.bias" not in self._tensors)
        modules = [f"estimator.ff.{number}" for number in range(MAX_REGRESSION)]
        self._regression = [name for name in modules if f"{name}.weight" in self._tensors]
        self._pool, self._normalizes = options["pool"], options["layer"] == "mix" and options["layer_norm"]
        self._word_layer = options["word_layer"] if files.kind == "xcomet_metric" else None
        try:
            self._inner = ACTIVATIONS[str(options["activations"]).lower()]
            self._final = ACTIVATIONS[str(options["final_activation"]).lower()]
            self._mix = self._layer_weights(options["layer"], options["layer_transformation"])
            # The first token has the position after `PADDING`, number 2.
            self.max_tokens = len(self._tensors["embeddings.position_embeddings.weight"]) - 2
            if files.tokenizer.largest >= len(self._tensors["embeddings.word_embeddings.weight"]):
                raise ValueError("the tokeniser has more pieces than the encoder")
            # A trial finds missing tensors, wrong shapes and unknown options.
            vector, labels = self.encode([(START, END)], lambda share: None)
            self.regress(vector.repeat(1, vectors)).item()
            if self._word_layer is not None and not labels:
                raise ValueError(f"there is no word_layer {self._word_layer}")
        except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"the parts of {files.name} don't fit together: {reason}.") from error

    @contextmanager
    def on(self, device: torch.device) -> Iterator[None]:
        """Compute on `device` in the block, with a copy of the weights."""
        before = self._device, self._tensors
        self._device, self._tensors = device, {name: one.to(device) for name, one in self._tensors.items()}
        try:
            yield
        finally:
            self._device, self._tensors = before

    @torch.inference_mode()
    def encode(
        self, sequences: Sequence[Tokens], report: Callable[[float], None]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return a vector for each sequence, [sequences, width]. For xCOMET, also return the probabilities of
        its tokens' labels, [tokens, labels].

        Equal sequences are computed once. `report` is called with the share that is done.
        """
        # Sorted, so that a batch has little padding.
        unique = sorted(dict.fromkeys(sequences), key=len)
        vectors, labels, done = list[Tensor](), list[Tensor](), 0
        for batch in _batches(unique, self._batch_tokens):
            of_batch, its_labels = self._encode(batch)
            vectors.append(of_batch)
            labels += its_labels
            done += len(batch)
            report(done / len(unique))
        row_of = {sequence: row for row, sequence in enumerate(unique)}
        rows = [row_of[sequence] for sequence in sequences]
        return torch.cat(vectors)[rows], [labels[row] for row in rows] if labels else []

    @torch.inference_mode()
    def regress(self, inputs: Tensor) -> Tensor:
        """Return the score of each row of `inputs`, [rows, width of the regression], on the CPU."""
        for name in self._regression[:-1]:
            inputs = self._inner(self._linear(name, inputs))
        return self._final(self._linear(self._regression[-1], inputs)).squeeze(1).cpu()

    def _encode(self, batch: Sequence[Tokens]) -> tuple[Tensor, list[Tensor]]:
        """Return the vectors of a batch, [batch, width], and for xCOMET the probabilities of labels for each
        sequence."""
        rows = [torch.tensor(sequence) for sequence in batch]
        tokens = pad_sequence(rows, batch_first=True, padding_value=PADDING).to(self._device)
        lengths = torch.tensor([len(row) for row in rows], device=self._device)[:, None]
        mask = torch.arange(tokens.shape[1], device=self._device) < lengths
        mixed, labels = torch.zeros((), device=self._device), list[Tensor]()
        for layer, hidden in enumerate(self._hidden_states(tokens, mask)):
            if weight := self._mix[layer]:
                mixed = mixed + weight * (_normalized(hidden, mask) if self._normalizes else hidden)
            if layer == self._word_layer:
                probabilities = self._linear("hidden2tag", hidden).softmax(2).cpu()
                labels = [one[: len(row)] for one, row in zip(probabilities, rows, strict=True)]
        padding = (tokens == PADDING)[:, :, None]  # also <pad> inside a text
        match self._pool:
            case "avg":
                return mixed.masked_fill(padding, 0).sum(1) / lengths, labels
            case "max":
                return mixed.masked_fill(padding, -torch.inf).amax(1), labels
            case "cls" | "default":
                return (mixed if self._pool == "cls" else hidden)[:, 0], labels
        raise ValueError(f"pool is {self._pool}")

    def _hidden_states(self, tokens: Tensor, mask: Tensor) -> Iterator[Tensor]:
        """Yield the embeddings of `tokens`, [batch, time], and then the output of each layer, [batch, time,
        width].

        `mask` is False for the padding at the end of sequences.
        """
        real = tokens != PADDING
        words, types, positions = (
            self._tensors[f"embeddings.{name}_embeddings.weight"]
            for name in ("word", "token_type", "position")
        )
        # The positions of tokens are counted from the number after `PADDING`.
        hidden = words[tokens] + types[0] + positions[real.cumsum(1) * real + PADDING]
        hidden = hidden if self._is_pre_norm else self._norm("embeddings.LayerNorm", hidden)
        yield hidden
        # Without a mask, PyTorch can choose its fastest attention.
        keys = None if bool(mask.all()) else mask[:, None, None]
        for number in range(self._depth):
            hidden = self._layer(f"encoder.layer.{number}.", hidden, keys)
            is_last = self._is_pre_norm and number == self._depth - 1
            yield self._norm("encoder.LayerNorm", hidden) if is_last else hidden

    def _layer(self, layer: str, hidden: Tensor, keys: Tensor | None) -> Tensor:
        """Return the output of a layer. The names of its tensors begin with `layer`. `keys` is False for
        padding, or None if there is no padding."""
        pre = self._is_pre_norm
        states = self._norm(f"{layer}attention.self_attn_layer_norm", hidden) if pre else hidden
        query, key, value = (
            self._linear(f"{layer}attention.self.{name}", states)
            .view(*states.shape[:2], self._heads, -1)
            .transpose(1, 2)
            for name in ("query", "key", "value")
        )
        attended = scaled_dot_product_attention(query, key, value, attn_mask=keys).transpose(1, 2).flatten(2)
        hidden = hidden + self._linear(f"{layer}attention.output.dense", attended)
        hidden = hidden if pre else self._norm(f"{layer}attention.output.LayerNorm", hidden)
        states = self._norm(f"{layer}LayerNorm", hidden) if pre else hidden
        inner = gelu(self._linear(f"{layer}intermediate.dense", states))
        hidden = hidden + self._linear(f"{layer}output.dense", inner)
        return hidden if pre else self._norm(f"{layer}output.LayerNorm", hidden)

    def _linear(self, name: str, states: Tensor) -> Tensor:
        return linear(states, self._tensors[f"{name}.weight"], self._tensors[f"{name}.bias"])

    def _norm(self, name: str, states: Tensor) -> Tensor:
        weight, bias = self._tensors[f"{name}.weight"], self._tensors[f"{name}.bias"]
        return layer_norm(states, states.shape[2:], weight, bias, self._epsilon)

    def _layer_weights(self, layer: object, transformation: object) -> list[float]:
        """Return the weight of each hidden state in the vector of a sentence: the embeddings first, and then
        each layer.

        If `layer` is a number, only that state counts. With "mix", the weights are learnt scores after
        softmax or sparsemax.
        """
        if layer != "mix":
            return [float(number == layer) for number in range(self._depth + 1)]
        names = [f"layerwise_attention.scalar_parameters.{number}" for number in range(self._depth + 1)]
        scores = torch.cat([self._tensors[name] for name in names]).cpu()
        weights = sparsemax(scores) if transformation == "sparsemax" else scores.softmax(0)
        return [float(weight) for weight in self._tensors["layerwise_attention.gamma"].cpu() * weights]


def sparsemax(scores: Tensor) -> Tensor:
    """Return the probabilities that are closest to `scores`, [n]. Low scores get exactly 0 (Martins and
    Astudillo, 2016)."""
    ordered = scores.sort(descending=True).values
    thresholds = (ordered.cumsum(0) - 1) / torch.arange(1, len(scores) + 1)
    return (scores - thresholds[ordered > thresholds][-1]).clamp(min=0)


def _normalized(hidden: Tensor, mask: Tensor) -> Tensor:
    """Scale and shift `hidden`, [batch, time, width], so that all numbers of a sentence together have mean 0
    and variance 1.

    Padding does not count, but it is scaled and shifted too. `mask` is False for padding.
    """
    inside = mask[:, :, None]
    numbers = inside.sum(1, keepdim=True) * hidden.shape[2]
    mean = (hidden * inside).sum((1, 2), keepdim=True) / numbers
    variance = ((hidden - mean) * inside).square().sum((1, 2), keepdim=True) / numbers
    return (hidden - mean) / (variance + 1e-12).sqrt()


def _batches(ordered: Sequence[Tokens], tokens: int) -> Iterator[list[Tokens]]:
    """Yield the sequences, which are ordered by length, in batches of at most `tokens` tokens with padding. A
    longer sequence is a batch of its own."""
    batch = list[Tokens]()
    for sequence in ordered:
        if batch and (len(batch) + 1) * len(sequence) > tokens:
            yield batch
            batch = []
        batch.append(sequence)
    yield from [batch] if batch else []
