"""COMET models score as unbabel-comet does, and as a plain implementation with transformers."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from nmt_cli.errors import UserError
from nmt_cli.scoring.neural.comet import BLOCK, Comet, _marks
from nmt_cli.scoring.neural.folder import CometFiles, read_comet
from nmt_cli.scoring.neural.network import Network, sparsemax
from tests.scoring.neural.conftest import encoder_of, weights
from tests.scoring.neural.models import OPTIONS, lines

SOURCES, TRANSLATIONS, REFERENCES = (lines(40, seed) for seed in (2, 3, 4))

ROUNDING = 1e-11
"""Maximum difference in float64 of two scores, which are about 1: a thousand times what layers add up to."""


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compute in float64. In fp32, batches of other sizes change scores by what the processor rounds."""

    def read(folder: Path) -> CometFiles:
        files = read_comet(folder)
        return files._replace(tensors={name: one.double() for name, one in files.tensors.items()})

    monkeypatch.setattr("nmt_cli.scoring.neural.comet.read_comet", read)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(usual)


def segments(options: dict[str, Any]) -> list[str]:
    qe = options["class_identifier"].startswith("referenceless")
    return ["mt", "src"] if qe else list(options.get("input_segments", ["mt", "src", "ref"]))


def scores(comet: Comet, used: list[str], *texts: list[str]) -> list[float]:
    sources, translations, references = texts
    return comet.score(
        sources if "src" in used else None, translations, references if "ref" in used else None
    )


class Plain:
    """COMET's formulas on one pair at a time, with the encoder of transformers and no padding."""

    def __init__(self, options: dict[str, Any], files: Path) -> None:
        self.options, self.kind = options, options["class_identifier"]
        self.tensors = {name: one.double() for name, one in weights(options).items()}
        self.encoder = encoder_of(options)
        named = {name.removeprefix("encoder.model."): tensor for name, tensor in self.tensors.items()}
        self.encoder.load_state_dict(
            {name: named[name] for name, _ in self.encoder.named_parameters()}, strict=False
        )
        self.tokenizer = Tokenizer.from_file(str(files / "tokenizer.json"))

    def tokens(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text).ids[1:-1][:508])

    def linear(self, name: str, inputs: Tensor) -> Tensor:
        return self.tensors[f"{name}.weight"] @ inputs + self.tensors[f"{name}.bias"]

    def regress(self, inputs: Tensor) -> float:
        count = len(self.options["hidden_sizes"])
        activate = torch.sigmoid if self.options.get("activations") == "Sigmoid" else torch.tanh
        for number in range(count):
            inputs = activate(self.linear(f"estimator.ff.{3 * number}", inputs))
        score = self.linear(f"estimator.ff.{3 * count}", inputs)
        return float(score.sigmoid() if self.options.get("final_activation") == "Sigmoid" else score)

    def states(self, ids: list[int]) -> tuple[Tensor, Any]:
        """Return the mixed state of each token, [tokens, width], and all hidden states."""
        hidden = self.encoder(torch.tensor([ids]), output_hidden_states=True).hidden_states
        layer = self.options.get("sent_layer", self.options.get("layer", "mix"))
        if layer != "mix":
            return hidden[layer][0], hidden
        is_joined = self.kind in ("unified_metric", "xcomet_metric")
        layers = torch.stack([state[0] for state in hidden])
        if self.options.get("layer_norm", self.kind != "xcomet_metric"):
            mean, variance = layers.mean((1, 2), keepdim=True), layers.var((1, 2), correction=0, keepdim=True)
            layers = (layers - mean) / (variance + 1e-12).sqrt()
        mix = torch.cat(
            [self.tensors[f"layerwise_attention.scalar_parameters.{n}"] for n in range(len(hidden))]
        )
        sparse = self.options.get("layer_transformation", "sparsemax" if is_joined else "softmax")
        weight = mix.softmax(0) if sparse == "softmax" or self.options.get("patched") else sparsemax(mix)
        return self.tensors["layerwise_attention.gamma"] * (weight[:, None, None] * layers).sum(0), hidden

    def embedding(self, text: str) -> Tensor:
        ids = [0, *self.tokens(text), 2]
        states, hidden = self.states(ids)
        real = torch.tensor(ids) != 1
        match self.options.get("pool", "avg"):
            case "max":
                return states[real].amax(0)
            case "avg":
                return states[real].sum(0) / len(ids)
            case "default":
                return torch.as_tensor(hidden[-1][0, 0])
        return states[0]

    def joined(self, *texts: str) -> tuple[float, Tensor]:
        """Return the score of texts encoded together, and the probabilities of labels, [tokens, labels]."""
        first, *rest = ([token for token in self.tokens(text) if token != 1] for text in texts)
        ids = [0, *first] + [token for part in rest for token in (2, 2, *part)] + [2]
        states, hidden = self.states(ids[:512])
        if self.kind != "xcomet_metric":
            return self.regress(states[0]), torch.empty(0)
        logits = hidden[self.options["word_layer"]][0] @ self.tensors["hidden2tag.weight"].T
        return self.regress(states[0]), (logits + self.tensors["hidden2tag.bias"]).softmax(1)

    @torch.no_grad()
    def score(self, source: str, translation: str, reference: str) -> float:
        if self.kind in ("regression_metric", "referenceless_regression_metric"):
            mt, src, ref = (self.embedding(text) for text in (translation, source, reference))
            if self.kind.startswith("referenceless"):
                return self.regress(torch.cat([mt, src, mt * src, (mt - src).abs()]))
            return self.regress(torch.cat([mt, ref, mt * ref, (mt - ref).abs(), mt * src, (mt - src).abs()]))
        inputs = [[source], [reference], [source, reference]]
        if len(used := segments(self.options)) == 2:
            inputs = [[source if "src" in used else reference]]
        results = [self.joined(translation, *texts) for texts in inputs]
        if self.kind == "unified_metric":
            return sum(score for score, _ in results) / len(results)
        labels = 0.1667 * results[0][1][:508], 0.3333 * results[1][1][:508], 0.5 * results[2][1][:508]
        count = len(self.tokens(translation)) + 2
        marked = [
            "O123"[int(label)] for label in torch.stack([part[:count] for part in labels]).sum(0).argmax(1)
        ]
        spans = ("".join(marked).split("O"))[:-1]
        penalty = sum({"1": 1, "2": 5, "3": 10}[span[0]] for span in spans if span)
        parts = [
            weight * min(score, 1) for weight, (score, _) in zip((0.12, 0.33, 0.33), results, strict=True)
        ]
        return sum(parts) + 0.22 * (25 - min(25, penalty)) / 25


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("name", list(OPTIONS))
def test_scores_are_those_of_the_formulas(name: str, comets: Path, encoder_files: Path) -> None:
    plain, used = Plain(OPTIONS[name], encoder_files), segments(OPTIONS[name])
    computed = scores(Comet(comets / name, "cpu"), used, SOURCES, TRANSLATIONS, REFERENCES)
    rows = zip(SOURCES, TRANSLATIONS, REFERENCES, strict=True)
    assert computed == pytest.approx([plain.score(*row) for row in rows], abs=ROUNDING)
    assert len({round(score, 6) for score in computed}) > 30


def test_labels_are_spans_that_end() -> None:
    def marks(labels: str) -> float:
        return _marks([torch.eye(4)[[int(label) for label in labels]]], [1.0], len(labels))

    assert [marks(text) for text in ("000", "0100", "0120210", "030", "0031", "01")] == [
        1,
        0.96,
        0.76,
        0.6,
        1,
        1,
    ]
    assert marks("030" * 3) == 0


PYTHON = os.environ.get("NMT_COMET_PYTHON", "")


@pytest.mark.skipif(not PYTHON, reason="NMT_COMET_PYTHON names no Python with unbabel-comet")
def test_scores_and_tokens_are_those_of_unbabel_comet(
    tmp_path: Path, encoder_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaps = list[float]()

    def marks(labels: Sequence[Tensor], weights: Sequence[float], length: int) -> float:
        parts = [weight * each[:length] for weight, each in zip(weights, labels, strict=True)]
        best = torch.stack(parts).sum(0).topk(2, 1).values
        gaps.append(float((best[:, 0] - best[:, 1]).min()))
        return _marks(labels, weights, length)

    monkeypatch.setattr("nmt_cli.scoring.neural.comet._marks", marks)
    oracle = Path(__file__).with_name("comet_oracle.py")
    shutil.copytree(encoder_files, tmp_path / "encoder")
    for name, options in OPTIONS.items():
        encoder = {"encoder_model": "XLM-RoBERTa", "pretrained_model": str(tmp_path / "encoder")}
        (tmp_path / f"{name}.json").write_text(json.dumps({**encoder, **options}))
    subprocess.run([PYTHON, oracle, "make", tmp_path], check=True, capture_output=True)
    texts = [lines(1000, seed) for seed in (5, 6, 7)]
    for name, options in OPTIONS.items():
        shutil.copytree(encoder_files, tmp_path / name, dirs_exist_ok=True)
        used = segments(options)
        rows = zip(*texts, strict=True)
        samples = [
            {k: v for k, v in zip(("src", "mt", "ref"), row, strict=True) if k in used} for row in rows
        ]
        (tmp_path / "pairs").write_text(json.dumps(samples))
        command = [PYTHON, str(oracle), "score", str(tmp_path / name), str(tmp_path / "pairs")]
        expected = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        comet = Comet(tmp_path / name, "cpu")
        assert [list(one) for one in comet._tokens(texts[1])] == expected["ids"], name
        gaps.clear()
        computed = scores(comet, used, *texts)
        # Rounding decides which of two equally probable labels a token of xCOMET has.
        clear = [row for row in range(1000) if not gaps or gaps[row] > 1e-6]
        assert len(clear) > 990
        differences = [abs(computed[row] - expected["scores"][row]) for row in clear]
        assert max(differences) <= 1e-5, name
        print(f"{name}: {max(differences):.1e}, {1000 - len(clear)} ties")


@pytest.mark.usefixtures("in_float64")
def test_references_are_optional_for_models_that_can_do_without(comets: Path) -> None:
    for name in ("unified", "xcomet"):
        comet = Comet(comets / name, "cpu")
        computed = comet.score(SOURCES, TRANSLATIONS, None)
        # A reference that equals the source gives the same first input of three.
        assert computed != comet.score(SOURCES, TRANSLATIONS, SOURCES)
        assert computed[1:2] == pytest.approx(
            comet.score(SOURCES[1:2], TRANSLATIONS[1:2], None), abs=ROUNDING
        )


@pytest.mark.usefixtures("in_float64")
def test_scores_do_not_depend_on_other_lines(comets: Path) -> None:
    comet = Comet(comets / "comet-22", "cpu")
    together = comet.score(SOURCES, TRANSLATIONS, REFERENCES)
    alone = [comet.score([s], [t], [r])[0] for s, t, r in zip(SOURCES, TRANSLATIONS, REFERENCES, strict=True)]
    assert together == pytest.approx(alone, abs=ROUNDING)


@pytest.mark.usefixtures("in_float64")
def test_vectors_computed_once_give_the_same_scores(comets: Path) -> None:
    for name in ("comet-22", "comet-qe"):
        comet = Comet(comets / name, "cpu")
        source, translation, reference = (comet.embed(text) for text in (SOURCES, TRANSLATIONS, REFERENCES))
        references = reference if name == "comet-22" else None
        expected = comet.score(SOURCES, TRANSLATIONS, REFERENCES)
        assert comet.estimate(translation, source, references).tolist() == pytest.approx(
            expected, abs=ROUNDING
        )
    with pytest.raises(UserError, match="has no vectors"):
        Comet(comets / "xcomet", "cpu").embed(SOURCES)


def test_equal_sentences_are_encoded_once(comets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = list[Any]()
    encode = Network._encode

    def counted(network: Network, batch: Any) -> Any:
        encoded.extend(batch)
        return encode(network, batch)

    monkeypatch.setattr(Network, "_encode", counted)
    comet = Comet(comets / "comet-22", "cpu")
    encoded.clear()
    comet.score(["a b"] * 9, ["b"] * 5 + ["a b"] * 4, ["c"] * 9)
    assert len(encoded) == len(set(encoded)) == 3


@pytest.mark.usefixtures("in_float64")
def test_progress_reaches_the_number_of_lines(comets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt_cli.scoring.neural.comet.BLOCK", 16)
    steps = list[tuple[str, int, int]]()
    comet = Comet(comets / "unified", "cpu", lambda *step: steps.append(step))
    blocks = comet.score(SOURCES, TRANSLATIONS, REFERENCES)
    assert steps[-1] == ("comet", 40, 40)
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)
    monkeypatch.setattr("nmt_cli.scoring.neural.comet.BLOCK", BLOCK)
    assert blocks == pytest.approx(comet.score(SOURCES, TRANSLATIONS, REFERENCES), abs=ROUNDING)


def test_sparsemax_is_the_projection_onto_the_simplex() -> None:
    for seed in range(20):
        scores = torch.randn(7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2
        weights = sparsemax(scores)
        assert weights.sum() == pytest.approx(1, abs=ROUNDING)
        assert weights.min() >= 0
        # The conditions for the nearest point: one shift for positive weights, and none above it elsewhere.
        shift = (scores - weights)[weights > 0]
        assert shift.tolist() == pytest.approx([float(shift[0])] * len(shift), abs=ROUNDING)
        assert (scores[weights == 0] <= shift[0] + ROUNDING).all()
