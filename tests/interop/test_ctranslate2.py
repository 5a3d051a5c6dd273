"""Imports from CTranslate2 and Argos Translate, with CTranslate2's own writer and translator as oracles."""

import io
import json
import os
import random
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy
import pytest
import sacremoses
import sentencepiece
import torch
import transformers
from numpy.typing import NDArray
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from nmt_cli.api import SearchConfig, TranslateConfig, load
from nmt_cli.checkpoints.finding import own_search, recipe_of
from nmt_cli.checkpoints.foreign_kinds import foreign_kind
from nmt_cli.checkpoints.model_folder import LoadedModel, read_model
from nmt_cli.data.encode import encode_lines
from nmt_cli.decoding.attention_maps import attention_maps, source_attention
from nmt_cli.errors import UserError
from nmt_cli.interop.argos import model_folders
from nmt_cli.interop.ctranslate2_binary import read_binary
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importing import read
from nmt_cli.interop.weights import to_halves
from nmt_cli.model.embedding import sinusoids
from nmt_cli.text.tokenizers import load_tokenizers
from tests.interop.conftest import (
    assert_refused,
    logits,
    m2m100_folder,
    pieces,
    sentences,
    spm,
)
from tests.interop.fake_hub import FakeHub, Repository

ctranslate2: Any = pytest.importorskip("ctranslate2")

WIDTH, INNER, HEADS = 32, 48, 4
LINES = sentences("source", 200, seed=9)
CAP = 24
"""Maximum tokens of a translation."""

VOCABULARY = Path("model", "shared_vocabulary.json")
LANGUAGES = ImportOptions("en", "de")

TABLES: dict[str, Callable[[], Any]] = {
    "alternating": lambda: sinusoids(280, WIDTH),
    "halves": lambda: to_halves(sinusoids(280, WIDTH)),
    "fairseq": lambda: to_halves(sinusoids(280, WIDTH, "marian", 2)),
    "learned": lambda: torch.randn(280, WIDTH, generator=torch.Generator().manual_seed(1)) / 2,
}
MODELS: dict[str, dict[str, Any]] = {
    "pre-norm": {"seed": 7},
    "post-norm, gelu": {"seed": 8, "pre_norm": False, "activation": "GELU", "table": "halves", "end": True},
    "tied, zero start": {"seed": 5, "activation": "SWISH", "table": "fairseq", "tied": True, "zeros": True},
    "learned, shared": {"seed": 5, "table": "learned", "shared": True, "activation": "GELUTanh"},
    "no table, no biases": {"seed": 9, "pre_norm": False, "table": None, "biased": False},
    "modern": {
        "seed": 9,
        "activation": "SWISH",
        "rms_norm": True,
        "ffn_glu": True,
        "biased": False,
        "tied": True,
    },
}
PRECISIONS = ["float16", "bfloat16", "int16", "int8", "int8_float16", "int8_bfloat16"]


@lru_cache
def spms(side: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return spm(Path(folder), side).read_bytes()


class Random:
    """Fills a specification with random weights."""

    def __init__(self, seed: int, biased: bool) -> None:
        self.generator, self.biased = numpy.random.default_rng(seed), biased

    def array(self, *shape: int, spread: float = 0.3) -> NDArray[numpy.float32]:
        return self.generator.normal(0.0, spread, shape).astype(numpy.float32)

    def norm(self, spec: Any) -> None:
        spec.gamma = 1 + self.array(WIDTH)
        if hasattr(spec, "beta"):
            spec.beta = self.array(WIDTH, spread=0.1)

    def linear(self, spec: Any, rows: int, columns: int) -> None:
        spec.weight = self.array(rows, columns)
        if self.biased:
            spec.bias = self.array(rows, spread=0.1)

    def layer(self, layer: Any) -> None:
        self.norm(layer.self_attention.layer_norm)
        self.linear(layer.self_attention.linear[0], 3 * WIDTH, WIDTH)
        self.linear(layer.self_attention.linear[1], WIDTH, WIDTH)
        if hasattr(layer, "attention"):
            self.norm(layer.attention.layer_norm)
            for linear, times in zip(layer.attention.linear, (1, 2, 1), strict=True):
                self.linear(linear, times * WIDTH, WIDTH)
        self.norm(layer.ffn.layer_norm)
        self.linear(layer.ffn.linear_0, INNER, WIDTH)
        self.linear(layer.ffn.linear_1, WIDTH, INNER)
        if hasattr(layer.ffn, "linear_0_noact"):
            self.linear(layer.ffn.linear_0_noact, INNER, WIDTH)


def model(
    folder: Path,
    *,
    table: str | None = "alternating",
    tied: bool = False,
    shared: bool = False,
    zeros: bool = False,
    end: bool = False,
    biased: bool = True,
    seed: int = 7,
    precision: str | None = None,
    activation: str = "RELU",
    change: Callable[[Any], None] = lambda spec: None,
    **options: Any,
) -> Path:
    """Write a random model with CTranslate2's writer, and SentencePiece models beside it."""
    folder.mkdir(parents=True)
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(spms(side))
    entries = {side: ["<blank>", "<s>", *pieces(folder / f"{side}.spm")] for side in ("source", "target")}
    if shared:
        entries = dict.fromkeys(entries, sorted({*entries["source"], *entries["target"]}))
    number = getattr(ctranslate2.specs.Activation, activation)
    spec = ctranslate2.specs.TransformerSpec.from_config((2, 2), HEADS, activation=number, **options)
    draw = Random(seed, biased)
    for stack in (spec.encoder, spec.decoder):
        if hasattr(stack, "layer_norm"):
            draw.norm(stack.layer_norm)
        if table and hasattr(stack, "position_encodings"):
            stack.position_encodings.encodings = TABLES[table]().numpy()
        for layer in stack.layer:
            draw.layer(layer)
    source, target = (len(entries[side]) for side in ("source", "target"))
    spec.decoder.projection.weight = draw.array(target, WIDTH)
    spec.decoder.projection.bias = draw.array(target, spread=0.5)
    spec.decoder.projection.bias[
        [entries["target"].index(mark) for mark in ("<s>", "<blank>", "<unk>")]
    ] = -99
    spec.decoder.projection.bias[entries["target"].index("</s>")] = 5.0
    own = draw.array(target, WIDTH)
    spec.decoder.embeddings.weight = spec.decoder.projection.weight if tied else own
    spec.encoder.embeddings[0].weight = draw.array(source, WIDTH)
    spec.decoder.start_from_zero_embedding = zeros
    spec.config.add_source_eos = end
    change(spec)
    spec.register_source_vocabulary(entries["source"])
    spec.register_target_vocabulary(entries["target"])
    spec.validate()
    spec.optimize(precision)
    spec.save(str(folder))
    return folder


def theirs(folder: Path, beam: int, ended: bool, use_vmap: bool = False) -> dict[str, str]:
    """Return CTranslate2's translations of those of `LINES` whose translations end before `CAP`. Sources have
    an end token if `ended`."""
    translator = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    encode = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm")).encode
    tokens = [encode(line, out_type=str) + ["</s>"] * ended for line in LINES]
    # At a minimum length of 1, CTranslate2 normalises the first probabilities without the end token.
    limits = {"max_decoding_length": CAP, "min_decoding_length": 0, "use_vmap": use_vmap}
    # All sentences of a batch of CTranslate2 share one shortlist.
    limits["max_batch_size"] = int(use_vmap)
    results = [one.hypotheses[0] for one in translator.translate_batch(tokens, beam_size=beam, **limits)]
    found = {line: tokens for line, tokens in zip(LINES, results, strict=True) if len(tokens) < CAP}
    return {line: "".join(tokens).replace("▁", " ").strip() for line, tokens in found.items()}


def assert_translated_alike(folder: Path, out: Path, beams: Sequence[int], *, ended: bool) -> None:
    """Import the model in `folder` to `out`, and compare translations."""
    write(read(str(folder), LANGUAGES), out)
    for beam in beams:
        expected = theirs(folder, beam, ended, (folder / "vmap.txt").is_file())
        search = {**own_search(out), "beam": beam, "min_length": 0, "cap_extra": CAP}
        with load(out, config=TranslateConfig(search=SearchConfig(**search))) as loaded:
            assert [text.strip() for text in loaded.translate(expected)] == [*expected.values()]
        assert len({*expected.values()}) >= 5


@pytest.mark.parametrize("name", MODELS)
def test_translations_are_ctranslate2s(name: str, tmp_path: Path) -> None:
    folder = model(tmp_path / "theirs", **MODELS[name])
    assert_translated_alike(folder, tmp_path / "ours", (1, 4), ended="zeros" in MODELS[name])


def test_a_vocabulary_map_is_used_as_by_ctranslate2(tmp_path: Path) -> None:
    folder = model(tmp_path / "theirs", **MODELS["pre-norm"])
    draws = random.Random(1)
    encode = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm")).encode
    source = sorted({piece for line in LINES for piece in encode(line, out_type=str)})
    target = json.loads((folder / "target_vocabulary.json").read_text())[3:]
    every = theirs(folder, 1, False)
    lines = [f"{piece}\t{' '.join(draws.sample(target, 4))}" for piece in source]
    # Phrases that no line has, one with a line separator of Unicode, and tokens for all lines.
    lines += [f"{source[0]} nowhere\t{target[0]}", f"un\u2028heard\t{target[0]}"]
    lines += [f"\t{' '.join(target[:6])} unheard-of"]
    (folder / "vmap.txt").write_text("\n".join(lines) + "\n")
    assert theirs(folder, 1, False, use_vmap=True) != every
    assert_translated_alike(folder, tmp_path / "ours", (1, 4), ended=False)
    (folder / "vmap.txt").write_text("no tab\n")
    assert_refused(folder, "vmap.txt line 1 has no tab", LANGUAGES)


def assert_scored_alike(
    folder: Path, ours: LoadedModel, pairs: Sequence[tuple[str, str]], *, adds_end: bool = False
) -> list[tuple[list[int], list[int]]]:
    """Check the log-probability of each token of the second texts, given the first. CTranslate2 adds the end
    token to targets and, with `adds_end`, to sources. Return our ids of both."""
    source, target = ours.identity.tokenizers.source, ours.identity.tokenizers.target
    ids = [
        (
            source.vocabulary.ended(source.encode(source.prepare(one))),
            target.vocabulary.ended(target.encode(target.prepare(other))),
        )
        for one, other in pairs
    ]
    translator = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    scored = translator.score_batch(
        [[source.vocabulary.entries[i] for i in one][: -1 if adds_end else None] for one, _ in ids],
        [[target.vocabulary.entries[i] for i in other[:-1]] for _, other in ids],
    )
    for (one, other), result in zip(ids, scored, strict=True):
        expected = logits(ours.transformer, [one], [other]).log_softmax(1)
        chosen = expected.gather(1, torch.tensor(other)[:, None])[:, 0]
        assert result.log_probs == pytest.approx(chosen.tolist(), abs=1e-3)
    return ids


@pytest.mark.parametrize("name", MODELS)
def test_probabilities_of_given_pairs_are_ctranslate2s(name: str, tmp_path: Path) -> None:
    folder = model(tmp_path / "theirs", **MODELS[name])
    write(read(str(folder), LANGUAGES), tmp_path / "ours")
    pairs = list(zip(*(sentences(side, 12, seed=4) for side in ("source", "target")), strict=True))
    assert_scored_alike(folder, read_model(tmp_path / "ours"), pairs, adds_end="end" in MODELS[name])


MANY = {"m2m100": ("en", "fr"), "nllb": ("eng_Latn", "fra_Latn")}
"""Source and target language."""


def converted(folder: Path, kind: str) -> Path:
    """Write a random M2M100 or NLLB, and convert it with CTranslate2's converter."""
    m2m100_folder(folder / kind, kind)
    if kind == "m2m100":  # the converter needs the list of codes that transformers 5 writes
        untyped: Any = transformers.M2M100Tokenizer
        untyped.from_pretrained(folder / kind).save_pretrained(folder / kind)
    converter = ctranslate2.converters.TransformersConverter(
        str(folder / kind), copy_files=["sentencepiece.bpe.model"]
    )
    converter.convert(str(folder / "theirs"))
    return folder / "theirs"


@pytest.mark.parametrize("kind", MANY)
def test_sentences_of_m2m100_and_nllb_begin_with_language_codes(kind: str, tmp_path: Path) -> None:
    source_lang, target_lang = MANY[kind]
    folder = converted(tmp_path, kind)
    foreign = read(str(folder), ImportOptions(source_lang, target_lang))
    assert any("languages with --source-lang" in note for note in foreign.notes)
    write(foreign, tmp_path / "ours")
    pairs = list(zip(*(sentences(side, 12, seed=4) for side in ("source", "target")), strict=True))
    ids = assert_scored_alike(folder, read_model(tmp_path / "ours"), pairs)
    untyped: Any = transformers.M2M100Tokenizer if kind == "m2m100" else transformers.NllbTokenizer
    tokenizer = untyped.from_pretrained(tmp_path / kind, src_lang=source_lang, tgt_lang=target_lang)
    assert [one for one, _ in ids] == [tokenizer(line).input_ids for line, _ in pairs]
    assert [other for _, other in ids] == [tokenizer(text_target=line).input_ids for _, line in pairs]


def test_language_codes_of_another_vocabulary_are_refused(tmp_path: Path) -> None:
    folder = converted(tmp_path, "nllb")
    path = folder / VOCABULARY.name
    entries = json.loads(path.read_text())
    path.write_text(json.dumps(["<s>", "</s>", "<pad>", *entries[3:]]))
    message = "has the language code ace_Arab, but is not of M2M100 or NLLB"
    assert_refused(folder, message, ImportOptions("eng_Latn", "fra_Latn"))
    path.write_text(json.dumps(entries))
    message = r"has no language dex: did you mean deu_Latn\?"
    assert_refused(folder, message, ImportOptions("eng_Latn", "dex"))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rounded_weights_are_exact(precision: str, tmp_path: Path) -> None:
    tensors = read_binary(model(tmp_path / "theirs", precision=precision) / "model.bin").tensors
    exact = read_binary(model(tmp_path / "exact") / "model.bin").tensors
    assert tensors.keys() == exact.keys()
    for name in ("decoder/layer_1/attention/linear_1/weight", "encoder/embeddings_0/weight"):
        rows = exact[name].numpy()
        if precision.startswith("int8"):
            scale = (127 / numpy.abs(rows).max(1, keepdims=True)).astype(numpy.float32)
            expected = torch.from_numpy(numpy.rint(rows * scale) / scale)
        elif precision == "int16":
            scale = numpy.float32(2**10 / numpy.abs(rows).max())
            expected = torch.from_numpy(numpy.rint(rows * scale) / scale)
        else:
            expected = exact[name].to(getattr(torch, precision))
        assert tensors[name].dtype == expected.dtype
        assert torch.equal(tensors[name], expected)
    bias = "decoder/layer_1/ffn/linear_0/bias"
    kind = precision.removeprefix("int8_") if "float" in precision else "float32"
    kind = "float32" if precision in ("int8", "int16") else kind
    assert tensors[bias].dtype == getattr(torch, kind if precision != "int8" else "float32")
    assert read(str(tmp_path / "theirs"), LANGUAGES).config == read(str(tmp_path / "exact"), LANGUAGES).config


def test_a_file_of_version_5_has_its_settings_in_flags(tmp_path: Path) -> None:
    """CTranslate2 reads the same old file."""
    folder = model(tmp_path / "theirs", seed=7, end=True)
    content = (folder / "model.bin").read_bytes()
    head, count = content[:26], struct.unpack("<I", content[26:30])[0]
    flag = b"with_source_eos\0"
    variable = struct.pack("<H", len(flag)) + flag + struct.pack("<BBIb", 0, 1, 1, 1)
    old = struct.pack("<I", 5) + head[4:] + struct.pack("<I", count + 1) + variable + content[30:]
    (folder / "model.bin").write_bytes(old)
    (folder / "config.json").unlink()
    for side in ("source", "target"):
        listed = json.loads((folder / f"{side}_vocabulary.json").read_text())
        (folder / f"{side}_vocabulary.txt").write_text("".join(f"{entry}\n" for entry in listed))
        (folder / f"{side}_vocabulary.json").unlink()
    assert_translated_alike(folder, tmp_path / "ours", (1,), ended=False)


def test_sources_without_end_token_stay_so_in_every_use(tmp_path: Path) -> None:
    write(read(str(model(tmp_path / "theirs")), LANGUAGES), tmp_path / "ours")
    with load(tmp_path / "ours") as loaded:
        tokenizers = load_tokenizers(tmp_path / "ours" / "tokenizer")
        source, target = tokenizers.source, tokenizers.target
        ids, others = source.encode(LINES[0]), target.encode("nsnö teuus")
        assert source.vocabulary.ended(ids) == ids
        assert source.vocabulary.ended([]) == [source.vocabulary.end]  # attention needs a token
        assert target.vocabulary.ended(others) == [*others, target.vocabulary.end]
        assert encode_lines(source, LINES[:2]).tokens.tolist() == ids + source.encode(LINES[1])
        assert encode_lines(target, ["nsnö teuus"]).tokens.tolist() == target.vocabulary.ended(others)
        pairs = [(ids, others)]
        (maps,) = attention_maps(loaded.transformers[0], pairs)
        assert maps.cross.shape[3] == len(ids)
        assert maps.alignment() == maps.cross.mean((0, 1))[: len(others)].argmax(1).tolist()
        (attention,) = source_attention(loaded.transformers[0], pairs)
        assert attention.shape == (len(others), len(ids) + 1)
        assert not attention[:, -1].any() and numpy.allclose(attention.sum(1), 1)


UNSUPPORTED: dict[str, tuple[str, dict[str, Any]]] = {
    "relative positions": ("relative_position_keys", {"with_relative_position": True, "table": None}),
    "a norm of embeddings": ("layernorm_embedding", {"layernorm_embedding": True}),
    "multi-query attention": ("multi_query_attention", {"multi_query_attention": True}),
    "another activation": ("activation is 6", {"activation": "Sigmoid"}),
    "no final norm": ("layer_norm", {"no_final_norm": True}),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_unsupported_feature_is_named(name: str, tmp_path: Path) -> None:
    expected, options = UNSUPPORTED[name]

    def change(spec: Any) -> None:
        for layer in (*spec.encoder.layer, *spec.decoder.layer):
            if "relative" in expected:
                layer.self_attention.relative_position_keys = numpy.ones((9, 8), numpy.float32)
                layer.self_attention.relative_position_values = numpy.ones((9, 8), numpy.float32)
        for stack in (spec.encoder, spec.decoder) if "embedding" in expected else ():
            Random(1, True).norm(stack.layernorm_embedding)

    assert_refused(model(tmp_path / "theirs", change=change, **options), expected, LANGUAGES)


@pytest.mark.parametrize("kind", ["TransformerDecoderSpec", "WhisperSpec"])
def test_another_kind_of_model_is_named(kind: str, tmp_path: Path) -> None:
    folder = model(tmp_path / "theirs")
    content = (folder / "model.bin").read_bytes()
    name = struct.pack("<H", len(kind) + 1) + kind.encode() + b"\0"
    (folder / "model.bin").write_bytes(content[:4] + name + content[22:])
    assert foreign_kind(folder) == "CTranslate2"
    assert_refused(folder, kind, LANGUAGES)


@pytest.mark.parametrize(
    ("missing", "expected"),
    [("source.spm", "no SentencePiece model"), ("target_vocabulary.json", "target_vocabulary.json")],
)
def test_a_missing_file_is_named(missing: str, expected: str, tmp_path: Path) -> None:
    folder = model(tmp_path / "theirs")
    (folder / missing).unlink()
    assert_refused(folder, expected, LANGUAGES)


def test_a_file_that_is_not_a_sentencepiece_model_is_named(tmp_path: Path) -> None:
    folder = model(tmp_path / "theirs")
    (folder / "target.spm").write_bytes(b"text")
    assert_refused(folder, r"target\.spm: this is not a SentencePiece model", LANGUAGES)


def test_quickmt_has_its_own_file_names_and_languages_in_the_folder_name(tmp_path: Path) -> None:
    folder = model(tmp_path / "quickmt-zh-en")
    for side, name in (("source", "src.spm.model"), ("target", "tgt.spm.model")):
        (folder / f"{side}.spm").rename(folder / name)
    foreign = read(str(folder), ImportOptions())
    recipe = foreign.tokenizers.recipe
    assert (recipe.source_lang, recipe.target_lang, foreign.search["beam"]) == ("zh", "en", 5)


def test_a_quickmt_model_is_downloaded_by_name_without_eoles_weights(tmp_path: Path, hub: FakeHub) -> None:
    folder = model(tmp_path / "made", table="halves")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    names = {"source.spm": "src.spm.model", "target.spm": "tgt.spm.model"}
    files = {names.get(name, name): content for name, content in files.items()}
    hub.repositories["quickmt/quickmt-zh-en"] = Repository({**files, "eole/model.00.safetensors": b"large"})
    recipe = read("quickmt/quickmt-zh-en", ImportOptions()).tokenizers.recipe
    assert (recipe.source_lang, recipe.target_lang, recipe.bare_source) == ("zh", "en", True)
    assert not any("safetensors" in request for request in hub.requests)


def package(folder: Path, root: str = "translate-en_de-1_0") -> Path:
    """Write a package of Argos Translate, zipped with entries of folders, as `zip -r` does."""
    inner = folder / root
    model(inner / "model", shared=True)
    (inner / "model" / "source.spm").rename(inner / "sentencepiece.model")
    (inner / "model" / "target.spm").unlink()
    (inner / "metadata.json").write_text(
        json.dumps({"from_code": "en", "to_code": "de", "type": "translate"})
    )
    shutil.make_archive(str(folder / "package"), "zip", folder, root)
    return (folder / "package.zip").rename(folder / "package.argosmodel")


def test_argos_packages_are_imported_from_a_zip_and_from_a_folder(tmp_path: Path) -> None:
    path = package(tmp_path)
    exported = tmp_path / "exported"
    exported.mkdir()
    shutil.copy(path, exported)
    for source in (path, exported, tmp_path / "translate-en_de-1_0"):
        assert foreign_kind(source) == "Argos Translate"
        foreign = read(str(source), ImportOptions())
        recipe = foreign.tokenizers.recipe
        assert (foreign.kind, recipe.source_lang, recipe.target_lang) == ("Argos Translate", "en", "de")
        assert (foreign.search["beam"], foreign.search["length_penalty"]) == (4, 0.2)
        assert recipe.bare_source
    shutil.copy(path, exported / "another.argosmodel")
    assert_refused(exported, r"has 2 packages\. Name one of them, such as .*another\.argosmodel")


def test_a_package_whose_translations_begin_with_a_token_is_refused(tmp_path: Path) -> None:
    package(tmp_path)
    path = tmp_path / "translate-en_de-1_0" / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "target_prefix": "__de__"}))
    assert_refused(path.parent, "target_prefix is '__de__', but nmt supports only ''")


@pytest.mark.parametrize(
    "name", ["../metadata.json", "/metadata.json", "a/model/../../../../x.bin", "a/b.txt"]
)
def test_a_package_with_hostile_paths_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "hostile.argosmodel"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "{}")
    assert_refused(path, ".", ImportOptions())
    assert [*tmp_path.rglob("*")] == [path.parent, path]


def test_bpe_codes_of_argos_segment_escaped_words_of_moses(tmp_path: Path) -> None:
    package(tmp_path)
    folder = tmp_path / "translate-en_de-1_0"
    lines = [f"{line}'s, \u201c{word}\u201d & {word}!" for line, word in zip(LINES, "ab" * 100, strict=True)]
    tokenize = sacremoses.MosesTokenizer("en").tokenize
    plain = [line.replace("\u201c", '"').replace("\u201d", '"') for line in lines]
    words = [tokenize(line, return_str=True) for line in plain]
    codes = io.StringIO()
    learn_bpe(io.StringIO("\n".join(words)), codes, 60)
    (folder / "bpe.model").write_text(codes.getvalue())
    (folder / "sentencepiece.model").unlink()
    segment = BPE(io.StringIO(codes.getvalue())).segment_tokens
    expected = [segment(line.split()) for line in words]
    entries = ["<unk>", "<s>", "</s>", *sorted({piece for line in expected for piece in line})]
    entries += [f"<{i}>" for i in range(len(json.loads((folder / VOCABULARY).read_text())) - len(entries))]
    (folder / VOCABULARY).write_text(json.dumps(entries))
    source = read(str(folder), ImportOptions()).tokenizers.source
    ids = [source.encode(source.prepare(line)) for line in lines]
    assert [[entries[i] for i in line] for line in ids] == expected
    assert any("&apos;" in piece for line in expected for piece in line)
    assert source.restore(source.decode(ids[0])) == plain[0]


def test_hostile_sizes_allocate_nothing(tmp_path: Path) -> None:
    folder = model(tmp_path / "theirs")
    content = (folder / "model.bin").read_bytes()
    start = content[:26]
    name = struct.pack("<H", 2) + b"w\0"
    for rest in (
        struct.pack("<I", 2**32 - 1),
        struct.pack("<I", 1) + name + struct.pack("<B4IBI", 4, *[2**32 - 1] * 4, 0, 2**32 - 1),
        struct.pack("<I", 1) + name + struct.pack("<B2IBI", 2, 2**16, 2**14, 0, 2**32 - 4) + b"x" * 99,
        struct.pack("<I", 1)
        + name
        + struct.pack("<B255I", 255, *[1] * 255)
        + struct.pack("<BI", 1, 1)
        + b"x",
    ):
        (folder / "model.bin").write_bytes(start + rest)
        assert_refused(folder, "damaged", LANGUAGES)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nmt" / "imported"


def test_packages_are_imported_once_for_the_server(tmp_path: Path, cache: Path) -> None:
    path = package(tmp_path / "packages")
    (tmp_path / "packages" / "translate-en_de-1_0").rename(tmp_path / "packages" / "translate-en_de-1.9")
    (tmp_path / "packages" / "sbd").mkdir()
    (tmp_path / "packages" / "sbd" / "metadata.json").write_text('{"type": "sbd"}')
    notes: list[str] = []
    folders = model_folders([tmp_path / "packages"], notes.append)
    assert [folder.name for folder in folders] == ["package", "translate-en_de-1.9"]
    recipes = [recipe_of(folder) for folder in folders]
    assert [(one.source_lang, one.target_lang) for one in recipes] == [("en", "de")] * 2
    assert {folder.parents[1] for folder in folders} == {cache}
    assert len(notes) == 2
    assert model_folders([path, tmp_path / "packages" / "translate-en_de-1.9"], notes.append) == folders
    assert len(notes) == 2
    os.utime(path, ns=(1, 1))
    assert model_folders([path], notes.append) != folders[:1]
    assert len(notes) == 3
    assert model_folders(folders, notes.append) == folders  # models of nmt stay as they are


def test_a_package_that_cannot_be_imported_is_named_and_leaves_no_folder(tmp_path: Path, cache: Path) -> None:
    path = package(tmp_path)
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(
        UserError, match=r"package\.argosmodel is not a complete zip.*leave .*package\.argosmodel out\."
    ):
        model_folders([path], print)
    assert not cache.exists()
