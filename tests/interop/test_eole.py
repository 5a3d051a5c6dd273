"""Imports from eole, against a forward pass in plain PyTorch, and against eole itself if it is installed."""

import importlib.util
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from sentencepiece import SentencePieceProcessor
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.api import SearchConfig, TranslateConfig, load
from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importing import read
from tests.interop.conftest import assert_refused, logits, pieces, sentences, spm

WIDTH, INNER, HEADS, LAYERS = 32, 48, 4, 2
LINES = sentences("source", 200, seed=9)
SPECIALS = ["<unk>", "<blank>", "<s>", "</s>"]
FILLERS = ["averyunlikelytoken0", "averyunlikelytoken1"]
SIDES = {"src": "source", "tgt": "target"}
LANGUAGES = ImportOptions("en", "de")
ROTARY = {"position_encoding_type": "Rotary", "layer_norm": "rms"}

MODELS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "biases, tied": {"add_qkvbias": True, "add_ffnbias": True, "share_decoder_embeddings": True},
    "one vocabulary": {
        "share_decoder_embeddings": True,
        "share_embeddings": True,
        "position_encoding_type": "SinusoidalConcat",
        "mlp_activation_fn": "silu",
    },
    "shared embeddings": {"share_embeddings": True, "mlp_activation_fn": "gelu-tanh", "norm_eps": 0.01},
    "learned": {
        "position_encoding_type": "Learned",
        "n_positions": 40,
        "mlp_activation_fn": "gelu",
        "generator_bias": False,
    },
    "rotary, SwiGLU, grouped": ROTARY
    | {"rope_config": {"rotary_interleave": False}, "mlp_activation_fn": "gated-silu", "heads_kv": 2},
    "rotary neighbours, GeGLU": ROTARY
    | {"rope_config": {}, "mlp_activation_fn": "gated-gelu", "add_qkvbias": True, "normalize": True},
    "wide heads": {"head_dim": 16, "heads_kv": 1, "mlp_activation_fn": "gated-gelu-tanh"},
}
SHARED = {
    "tgt_emb.embeddings.weight": "share_embeddings",
    "generator.weight": "share_decoder_embeddings",
}
"""The settings that leave out a matrix."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def sinusoids(kind: str, count: int = 5000) -> Tensor:
    """Return the table that eole stores, [count, 1, WIDTH]."""
    if kind == "SinusoidalConcat":
        rates = torch.exp(torch.arange(WIDTH // 2) * -(math.log(10000) / (WIDTH // 2 - 1)))
        angles = torch.arange(count)[:, None] * rates
        return torch.cat([angles.sin(), angles.cos()], 1)[:, None]
    angles = torch.arange(count)[:, None] * torch.exp(
        torch.arange(0, WIDTH, 2) * -(math.log(10000.0) / WIDTH)
    )
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[:, None]


class Weights:
    """Random weights of a model, by eole's names."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.tensors = settings, dict[str, Tensor]()
        self.generator = torch.Generator().manual_seed(5)
        self.head = settings.get("head_dim", WIDTH // HEADS)

    def random(self, *shape: int, spread: float = 0.3) -> Tensor:
        return torch.randn(*shape, generator=self.generator) * spread

    def linear(self, name: str, outputs: int, inputs: int, bias: str) -> None:
        self.tensors[f"{name}.weight"] = self.random(outputs, inputs)
        if self.settings.get(bias, bias == "generator_bias"):
            self.tensors[f"{name}.bias"] = self.random(outputs, spread=0.2)

    def norm(self, name: str) -> None:
        self.tensors[f"{name}.weight"] = 1 + self.random(WIDTH, spread=0.2)
        if self.settings.get("layer_norm") != "rms":
            self.tensors[f"{name}.bias"] = self.random(WIDTH, spread=0.2)

    def attention(self, name: str) -> None:
        shared = self.settings.get("heads_kv", HEADS)
        for part, heads in (("query", HEADS), ("keys", shared), ("values", shared)):
            self.linear(f"{name}.linear_{part}", heads * self.head, WIDTH, "add_qkvbias")
        self.linear(f"{name}.final_linear", WIDTH, HEADS * self.head, "add_qkvbias")

    def layer(self, name: str, *, decoder: bool) -> None:
        self.attention(f"{name}.self_attn")
        if decoder:
            self.attention(f"{name}.context_attn")
            self.norm(f"{name}.precontext_layernorm")
            self.tensors[f"{name}.layer_scalar"] = torch.ones(1)
        self.norm(f"{name}.input_layernorm")
        self.norm(f"{name}.post_attention_layernorm")
        gated = "gated" in self.settings.get("mlp_activation_fn", "")
        for part in ("gate_up_proj", "up_proj")[: 1 + gated]:
            self.linear(f"{name}.mlp.{part}", INNER, WIDTH, "add_ffnbias")
        self.linear(f"{name}.mlp.down_proj", WIDTH, INNER, "add_ffnbias")

    def embeddings(self, side: str, rows: int) -> None:
        kind = self.settings.get("position_encoding_type", "SinusoidalInterleaved")
        self.tensors[f"{side}_emb.embeddings.weight"] = self.random(rows, WIDTH, spread=0.4)
        if kind == "Learned":
            count = self.settings["n_positions"]
            self.tensors[f"{side}_emb.pe.weight"] = self.random(count, WIDTH, spread=1.0)
        elif kind != "Rotary":
            self.tensors[f"{side}_emb.pe.pe"] = sinusoids(kind)

    def model(self, rows: dict[str, int]) -> dict[str, Tensor]:
        for stack in ("encoder", "decoder"):
            for number in range(LAYERS):
                self.layer(f"{stack}.transformer_layers.{number}", decoder=stack == "decoder")
            self.norm(f"{stack}.layer_norm")
        for side in SIDES:
            self.embeddings(side, rows[side])
        self.linear("generator", rows["tgt"], WIDTH, "generator_bias")
        if "generator.bias" in self.tensors:
            never = [1, 2, *range(rows["tgt"] - len(FILLERS), rows["tgt"])]
            self.tensors["generator.bias"][never] = -30.0
            self.tensors["generator.bias"][3] = 2.0
        for name, shared in SHARED.items():
            if self.settings.get(shared):
                del self.tensors[name]
        return self.tensors


def folder_of_eole(folder: Path, settings: dict[str, Any]) -> dict[str, Tensor]:
    """Write a model folder like `eole train`, and return its weights."""
    folder.mkdir()
    sides = dict.fromkeys(SIDES, "source") if settings.get("share_embeddings") else SIDES
    segmenters = {ours: spm(folder, ours) for ours in SIDES.values()}
    words = {side: [*SPECIALS, *pieces(segmenters[ours])[2:], *FILLERS] for side, ours in sides.items()}
    tensors = Weights(settings).model({side: len(listed) for side, listed in words.items()})
    kind = settings.get("position_encoding_type", "SinusoidalInterleaved")
    in_embeddings = {"normalize": settings["normalize"]} if "normalize" in settings else {}
    if "n_positions" in settings:
        in_embeddings["n_positions"] = settings["n_positions"]
    model = {name: value for name, value in settings.items() if name != "normalize"}
    model |= {"architecture": "transformer", "hidden_size": WIDTH, "heads": HEADS, "layers": LAYERS}
    model |= {"transformer_ff": INNER, "position_encoding_type": kind}
    stack = {name: value for name, value in model.items() if "share" not in name and name != "architecture"}
    stack.pop("generator_bias", None)
    model["embeddings"] = {"word_vec_size": WIDTH, "position_encoding_type": kind, **in_embeddings}
    model["encoder"] = {**stack, "encoder_type": "transformer"}
    model["decoder"] = {**stack, "decoder_type": "transformer", "with_cross_attn": True}
    models = {f"{side}_subword_model": f"${{MODEL_PATH}}/{ours}.spm" for side, ours in sides.items()}
    described = {
        "transforms": ["sentencepiece", "filtertoolong"],
        "transforms_configs": {"sentencepiece": models, "filtertoolong": {"src_seq_length": 96}},
        "share_vocab": bool(settings.get("share_embeddings")),
        "training": {},
        "src_vocab": "src.txt",  # eole demands the name, and reads vocab.json
        "model": model,
    }
    specials = dict(zip(("unk_token", "pad_token", "bos_token", "eos_token"), SPECIALS, strict=True))
    vocabulary = {**words, "decoder_start_token": "<s>", "specials": specials}
    for name, content in (("config.json", described), ("vocab.json", vocabulary)):
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    save_file(tensors, folder / "model.00.safetensors")
    return tensors


class Eole:
    """eole's forward pass, written from its modules: embeddings, encoder, decoder and generator."""

    def __init__(self, tensors: dict[str, Tensor], settings: dict[str, Any]) -> None:
        self.tensors, self.settings = tensors, settings
        self.head = settings.get("head_dim", WIDTH // HEADS)
        name, self.rms = settings.get("mlp_activation_fn", "relu"), settings.get("layer_norm") == "rms"
        self.gated, self.activation = "gated" in name, ACTIVATIONS[name.removeprefix("gated-")]
        self.kind = settings.get("position_encoding_type", "SinusoidalInterleaved")

    def logits(self, source: list[int], target: list[int]) -> Tensor:
        memory = self.stack("encoder", self.embed("src", source), None)
        hidden = self.stack("decoder", self.embed("tgt", [SPECIALS.index("<s>"), *target[:-1]]), memory)
        target_matrix = self.tensors.get(
            "tgt_emb.embeddings.weight", self.tensors["src_emb.embeddings.weight"]
        )
        out = hidden @ self.tensors.get("generator.weight", target_matrix).T
        return out + self.tensors.get("generator.bias", torch.zeros(1))

    def embed(self, side: str, ids: list[int]) -> Tensor:
        matrix = self.tensors.get(f"{side}_emb.embeddings.weight", self.tensors["src_emb.embeddings.weight"])
        vectors = matrix[ids]
        if self.kind == "Learned":
            return vectors + self.tensors[f"{side}_emb.pe.weight"][: len(ids)]
        if self.kind == "Rotary":
            return torch.mul(vectors, WIDTH**0.5 if self.settings.get("normalize") else 1.0)
        return torch.add(self.tensors[f"{side}_emb.pe.pe"][: len(ids), 0], vectors, alpha=WIDTH**0.5)

    def stack(self, name: str, x: Tensor, memory: Tensor | None) -> Tensor:
        for number in range(LAYERS):
            layer = f"{name}.transformer_layers.{number}"
            normed = self.norm(f"{layer}.input_layernorm", x)
            x = x + self.attend(f"{layer}.self_attn", normed, normed, causal=memory is not None)
            if memory is not None:
                query = self.norm(f"{layer}.precontext_layernorm", x)
                x = x + self.attend(f"{layer}.context_attn", query, memory)
            normed = self.norm(f"{layer}.post_attention_layernorm", x)
            inner = self.activation(self.linear(f"{layer}.mlp.gate_up_proj", normed))
            if self.gated:
                inner = inner * self.linear(f"{layer}.mlp.up_proj", normed)
            x = x + self.linear(f"{layer}.mlp.down_proj", inner)
        return self.norm(f"{name}.layer_norm", x)

    def attend(self, name: str, query: Tensor, keys: Tensor, *, causal: bool = False) -> Tensor:
        parts = (("linear_query", query), ("linear_keys", keys), ("linear_values", keys))
        q, k, v = (self.linear(f"{name}.{part}", x).view(len(x), -1, self.head) for part, x in parts)
        if self.kind == "Rotary" and "self" in name:
            q, k = self.turn(q), self.turn(k)
        k, v = (x.repeat_interleave(HEADS // x.shape[1], 1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / self.head**0.5
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), -math.inf)
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(2), v).flatten(1)
        return self.linear(f"{name}.final_linear", mixed)

    def turn(self, x: Tensor) -> Tensor:
        rates = 10000 ** -(torch.arange(0, self.head, 2) / self.head)
        angles = (torch.arange(len(x))[:, None] * rates)[:, None]
        neighbours = self.settings["rope_config"].get("rotary_interleave", True)
        one, two = (x[..., 0::2], x[..., 1::2]) if neighbours else x.chunk(2, 2)
        pair = (one * angles.cos() - two * angles.sin(), one * angles.sin() + two * angles.cos())
        return torch.stack(pair, 3).flatten(2) if neighbours else torch.cat(pair, 2)

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias"))

    def norm(self, name: str, x: Tensor) -> Tensor:
        weight, epsilon = self.tensors[f"{name}.weight"], self.settings.get("norm_eps", 1e-5)
        if self.rms:
            return torch.mul(x * weight, (x.pow(2).mean(-1, keepdim=True) + epsilon).rsqrt())
        return F.layer_norm(x, [WIDTH], weight, self.tensors[f"{name}.bias"], epsilon)


PAIRS = [
    ([4 + (i * k) % 70 for k in range(1 + i)], [5 + (i + 3 * k) % 70 for k in range(2 + i % 7)])
    for i in range(9)
]


@pytest.mark.parametrize("name", [*MODELS, "another table", "mixed precision"])
def test_logits_are_those_of_eole(name: str, tmp_path: Path) -> None:
    settings = MODELS.get(name, {})
    theirs = Eole(folder_of_eole(tmp_path / "m", settings), settings)
    if name == "another table":  # than that of the settings
        theirs.tensors["src_emb.pe.pe"] = sinusoids("SinusoidalConcat")
        save_file(theirs.tensors, tmp_path / "m" / "model.00.safetensors")
    if name == "mixed precision":
        halves = theirs.tensors["generator.weight"].half()
        save_file(theirs.tensors | {"generator.weight": halves}, tmp_path / "m" / "model.00.safetensors")
        theirs.tensors["generator.weight"] = halves.float()
    write(read(str(tmp_path / "m"), LANGUAGES), tmp_path / "ours")
    ours = read_model(tmp_path / "ours")
    expected = torch.cat([theirs.logits(source, target) for source, target in PAIRS])
    assert expected[:, 4:-2].std() > 0.5
    sources, targets = zip(*PAIRS, strict=True)
    assert (logits(ours.transformer, sources, targets) - expected).abs().max() <= 1e-4


def greedy(theirs: Eole, folder: Path, lines: list[str]) -> list[str]:
    """Return the most probable token at each step, until the end token or eole's maximum length."""
    words, spms = json.loads((folder / "vocab.json").read_bytes()), {}
    names = json.loads((folder / "config.json").read_bytes())["transforms_configs"]["sentencepiece"]
    for side in SIDES:
        model = folder / Path(names[f"{side}_subword_model"]).name
        spms[side] = SentencePieceProcessor(model_file=str(model))
    end, translations = SPECIALS.index("</s>"), []
    for line in lines:
        tokens = spms["src"].encode(line, out_type=str)
        source = [words["src"].index(token) if token in words["src"] else 0 for token in tokens]
        target: list[int] = []
        while len(target) < 2 * len(source) + 5:
            token = int(theirs.logits(source, [*target, 0])[-1].argmax())
            if token == end:
                break
            target.append(token)
        translations.append(spms["tgt"].decode([words["tgt"][i] for i in target]))
    return translations


def translated(folder: Path, out: Path, lines: list[str]) -> list[str]:
    """Return greedy translations by nmt."""
    foreign = read(str(folder), LANGUAGES)
    write(foreign, out)
    search = SearchConfig(**{**foreign.search, "beam": 1})
    with load(out, device="cpu", threads=1, config=TranslateConfig(search=search)) as model:
        return list(model.translate(lines))


@pytest.mark.parametrize("name", ["biases, tied", "one vocabulary", "rotary, SwiGLU, grouped"])
def test_greedy_translations_are_those_of_eole(name: str, tmp_path: Path) -> None:
    theirs = Eole(folder_of_eole(tmp_path / "m", MODELS[name]), MODELS[name])
    expected = greedy(theirs, tmp_path / "m", LINES[:24])
    assert len({*expected}) > 6
    assert translated(tmp_path / "m", tmp_path / "ours", LINES[:24]) == expected


@pytest.mark.skipif(not importlib.util.find_spec("eole"), reason="needs eole: pip install eole aiohttp")
@pytest.mark.parametrize("name", [name for name in MODELS if name != "learned"])  # eole cannot decode it
def test_200_greedy_translations_are_those_of_the_command_of_eole(name: str, tmp_path: Path) -> None:
    folder_of_eole(tmp_path / "m", MODELS[name])
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    files = ("-model_path", tmp_path / "m", "-src", tmp_path / "lines", "-output", tmp_path / "out")
    command = [sys.executable, "-m", "eole.bin.main", "predict", *map(str, files)]
    options = ("-beam_size", "1", "-batch_size", "1", "-batch_type", "sents")
    subprocess.run([*command, *options], check=True, capture_output=True)
    expected = (tmp_path / "out").read_text(encoding="utf-8").splitlines()
    assert translated(tmp_path / "m", tmp_path / "ours", LINES) == expected


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder_of_eole(tmp_path / "m", MODELS["rotary, SwiGLU, grouped"])
    return tmp_path / "m"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"architecture": "transformer_lm"}}, "architecture is 'transformer_lm'"),
        ({"model": {"position_encoding_type": "Alibi"}}, "position_encoding_type is Alibi"),
        ({"model": {"layer_norm": "gemma-rms"}}, "layer_norm is gemma-rms"),
        ({"model": {"mlp_activation_fn": "quick_gelu"}}, "mlp_activation_fn is quick_gelu"),
        ({"model": {"num_experts": 4}}, "num_experts is 4"),
        ({"model": {"sliding_window": 64}}, "sliding_window is 64"),
        ({"model": {"query_norm": True}}, "query_norm is True"),
        ({"model": {"rope_config": {"rotary_theta": 1_000_000}}}, "rotary_theta is 1000000"),
        ({"model": {"rope_config": {"rotary_dim": 4}}}, "rotary_dim is 4"),
        ({"model": {"rope_config": {"scaling_type": "llama3"}}}, "scaling_type is 'llama3'"),
        ({"model": {"encoder": {"encoder_layer_style": "postnorm"}}}, "encoder_layer_style is 'postnorm'"),
        ({"model": {"decoder": {"heads": 2}}}, "encoder and decoder differ in heads"),
        ({"model": {"heads": 3}}, "not a multiple of the 3 heads"),
        ({"model": {"heads": 1000, "head_dim": 8}}, r"q_proj\.weight is \[32, 32\], not \[8000, 32\]"),
        ({"model": {"layer_norm": "standard"}}, r"has no encoder\.layers\.0\..*layer_norm\.bias"),
        ({"transforms": ["sentencepiece", "normalize"]}, "transforms has sentencepiece, normalize"),
        ({"transforms": []}, "transforms has no subwords"),
        ({"transforms_configs": {"sentencepiece": {"src_vocab_threshold": 5}}}, "src_vocab_threshold is 5"),
        (
            {"transforms_configs": {"sentencepiece": {"src_subword_model": "x/en.spm"}}},
            r"m/en\.spm is missing",
        ),
        (
            {"transforms_configs": {"sentencepiece": {"src_subword_model": "x/e\0n.spm"}}},
            "is not the name of a file",
        ),
    ],
    ids=str,
)
def test_a_setting_that_nmt_lacks_is_named(folder: Path, change: dict[str, Any], message: str) -> None:
    described = json.loads((folder / "config.json").read_bytes())
    changed = merged(described, change)
    for stack in ("encoder", "decoder") if change.get("model") else ():
        own = {name: value for name, value in change["model"].items() if name not in ("encoder", "decoder")}
        changed["model"][stack] = merged(changed["model"][stack], own)
    (folder / "config.json").write_text(json.dumps(changed))
    assert_refused(folder, message, LANGUAGES)


def merged(values: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    inner = {
        name: merged(values.get(name, {}), value) if isinstance(value, dict) else value
        for name, value in change.items()
    }
    return values | inner


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"src": ["<unk>"]}, "src has no </s>"),
        (
            {"tgt": [*SPECIALS, *map(str, range(500))]},
            r"tgt has 504 entries, but the model has only [0-9]+\.",
        ),
        ({"decoder_start_token": "<2de>"}, "src has no <2de>"),
        ({"src": "<unk>"}, "src must be a list, each item a text in UTF-8"),
    ],
    ids=["no end", "too many", "no start", "no list"],
)
def test_a_vocabulary_that_does_not_fit_is_refused(
    folder: Path, change: dict[str, Any], message: str
) -> None:
    words = json.loads((folder / "vocab.json").read_bytes())
    (folder / "vocab.json").write_text(json.dumps(words | change))
    assert_refused(folder, message, LANGUAGES)


def test_factors_of_layers_are_refused(tmp_path: Path) -> None:
    tensors = folder_of_eole(tmp_path / "m", {})
    scalar = "decoder.transformer_layers.0.layer_scalar"
    save_file({**tensors, scalar: torch.full((1,), 0.5)}, tmp_path / "m" / "model.00.safetensors")
    assert_refused(tmp_path / "m", f"has {scalar}, which nmt's Transformer lacks", LANGUAGES)


def test_codes_of_subword_nmt_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder_of_eole(folder, {})
    words = json.loads((folder / "vocab.json").read_bytes())
    for side in SIDES:
        parts = [f"{letter}{mark}" for letter in "abdefgilnprst" for mark in ("@@", "")]
        size = len(words[side])
        words[side] = [*SPECIALS, "ab@@", *parts, *(f"x{i}" for i in range(size))][:size]
        (folder / f"{side}.codes").write_text("#version: 0.2\na b\n")
    described = json.loads((folder / "config.json").read_bytes())
    described["transforms"] = ["bpe"]
    described["transforms_configs"] = {"bpe": {f"{side}_subword_model": f"{side}.codes" for side in SIDES}}
    (folder / "config.json").write_text(json.dumps(described))
    (folder / "vocab.json").write_text(json.dumps(words))
    tokenizer = read(str(folder), LANGUAGES).tokenizers.source
    tokens = [words["src"][i] for i in tokenizer.encode(tokenizer.prepare("abe fg"))]
    assert tokens == ["ab@@", "e", "f@@", "g"]


def test_a_weights_file_stands_for_its_folder_whose_name_has_the_languages(tmp_path: Path) -> None:
    folder_of_eole(tmp_path / "model-en-de", {})
    recipe = read(str(tmp_path / "model-en-de" / "model.00.safetensors"), ImportOptions()).tokenizers.recipe
    assert (recipe.source_lang, recipe.target_lang) == ("en", "de")
    assert_refused(tmp_path / "model-en-de", "Omit --positions", ImportOptions(positions="marian"))
