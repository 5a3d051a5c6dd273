"""Exported models: they translate alike, and importing them restores the original."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch

from nmt_cli.api import load
from nmt_cli.checkpoints.finding import own_search
from nmt_cli.checkpoints.model_folder import (
    Identity,
    LoadedModel,
    read_model,
    weights,
    write_model,
    write_shortlist,
)
from nmt_cli.data.dataset import TOKENIZERS
from nmt_cli.errors import UserError
from nmt_cli.interop import huggingface, marian
from nmt_cli.interop.exporting import TOOLKITS, export, losses, translator
from nmt_cli.interop.foreign import ACTIVATIONS, ImportOptions, write
from nmt_cli.interop.importing import read
from nmt_cli.model import layers
from nmt_cli.model.config import ModelConfig
from nmt_cli.runtime.atomic import folder_written_whole
from nmt_cli.text.shortlist import shortlist_of
from nmt_cli.text.tokenizers import Tokenizers, load_tokenizers
from tests.interop.conftest import assert_equal_tensors, logits
from tests.model.test_variants import VARIANTS

SMALL = ModelConfig(encoder_layers=2, decoder_layers=2, width=32, feed_forward=48, heads=4, norm_epsilon=1e-5)
MODELS = {
    "post-norm": replace(SMALL, norm_epsilon=1e-6),
    "untied, output bias, decoder apart": replace(
        SMALL, tie="none", output_bias=True, activation="swish", decoder_heads=2, decoder_feed_forward=40
    ),
    "pre-norm, biases": replace(SMALL, norm="pre", attention_bias=True, activation="gelu"),
}
MODERN = {
    "rotary": replace(
        SMALL,
        norm="pre",
        norm_kind="rms",
        activation="swish",
        gated=True,
        positions="rotary",
        scale_embeddings=False,
        tie="decoder",
    ),
    "t5": replace(
        SMALL,
        norm="pre",
        norm_kind="rms",
        activation="gelu_tanh",
        gated=True,
        feed_forward_bias=False,
        positions="relative",
        key_width=12,
        value_width=12,
    ),
    "shared embeddings": replace(SMALL, tie="embeddings", norm_kind="rms"),
}
EXPRESSIBLE = {
    "huggingface": SMALL,
    "marian": replace(SMALL, positions="marian", start="zeros", norm_epsilon=1e-6),
    "bergamot": replace(SMALL, positions="marian", start="zeros", norm_epsilon=1e-6),
    "ctranslate2": SMALL,
}
"""The formats that can be imported again, each with a model that it can express."""

ARGOS_TRANSLATE = Path(__file__).with_name("argos_translate.py")
HAS_CTRANSLATE2 = importlib.util.find_spec("ctranslate2") is not None

NARROW_DECODER = replace(SMALL, key_width=8, value_width=8, decoder_heads=2)
"""The widths of all heads have to be written, though the encoder's are width / heads."""


@pytest.fixture(scope="module", params=[True, False], ids=["joint", "separate"])
def tokenizers(request: pytest.FixtureRequest, toy_tokenizers: Callable[..., Tokenizers]) -> Tokenizers:
    return toy_tokenizers(joint=request.param)


def random_model(folder: Path, config: ModelConfig, tokenizers: Tokenizers) -> LoadedModel:
    """Write a model with weights that matter, and sentences that end."""
    if not tokenizers.recipe.joint and config.tie in ("all", "embeddings"):
        config = replace(config, tie="decoder")
    identity = Identity(config, tokenizers, {"longest": 100})
    torch.manual_seed(3)
    model = identity.build()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.normal_(float(parameter.mean()), 0.1)
            elif parameter.shape[1] in (config.width, config.heads):
                parameter.mul_(2.0)
    with folder_written_whole(folder) as unfinished:
        write_model(unfinished, identity, weights(model), {})
    return read_model(folder)


HELD: list[tuple[str, bool]] = [(name, True) for name in MODELS] + [
    (name, False) for name in MODELS if "pre" not in name
]
"""The models that a folder of transformers can hold, and whether their tokeniser is joint."""


@pytest.fixture(params=HELD, ids=str)
def model(
    request: pytest.FixtureRequest, tmp_path: Path, toy_tokenizers: Callable[..., Tokenizers]
) -> LoadedModel:
    name, joint = request.param
    return random_model(tmp_path / "ours", MODELS[name], toy_tokenizers(joint=joint))


def test_a_model_comes_back_from_hugging_face_as_it_was(model: LoadedModel, tmp_path: Path) -> None:
    export(model, "huggingface", tmp_path / "theirs")
    write(read(str(tmp_path / "theirs"), ImportOptions()), tmp_path / "back")
    back = read_model(tmp_path / "back")
    assert back.identity.config == model.identity.config
    assert back.identity.trained_on == model.identity.trained_on
    assert back.identity.tokenizers.fingerprint == model.identity.tokenizers.fingerprint
    assert_equal_tensors(weights(model.transformer), weights(back.transformer))


def test_transformers_alone_reads_and_scores_an_exported_model_alike(
    model: LoadedModel, tmp_path: Path, toy_pairs: list[tuple[str, str]]
) -> None:
    export(model, "huggingface", tmp_path / "theirs")
    lines = [source for source, _ in toy_pairs[:16]]
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "theirs")
    loaded: Any = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "theirs", output_loading_info=True)
    untyped, loading = loaded
    assert not any(loading.values())
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    source, target = model.identity.tokenizers.source, model.identity.tokenizers.target
    ids = [source.vocabulary.ended(source.encode(source.prepare(line))) for line in lines]
    assert [row[: len(one)].tolist() for row, one in zip(batch.input_ids, ids, strict=True)] == ids
    chosen = torch.randint(2, 60, (16, 7), generator=torch.Generator().manual_seed(1))
    start = torch.full((16, 1), untyped.config.decoder_start_token_id)
    with torch.no_grad():
        fed = torch.cat([start, chosen[:, :-1]], 1)
        theirs = untyped(**batch, decoder_input_ids=fed).logits
        log_softmax = theirs.log_softmax(2)[:, :, :-1]
        ours = logits(model.transformer, ids, chosen.tolist())
        expected = ours.view(log_softmax.shape).log_softmax(2)
    assert expected.std() > 0.5
    assert (
        log_softmax - expected
    ).abs().max() <= 1e-4  # over all entries, so that padding has no probability
    ended = torch.cat([chosen, torch.full((16, 1), untyped.config.eos_token_id)], 1)
    shown = tokenizer.batch_decode(ended, skip_special_tokens=True)
    assert shown == [target.decode(row) for row in chosen.tolist()]


@pytest.mark.skipif(not HAS_CTRANSLATE2, reason="needs CTranslate2: pip install ctranslate2")
@pytest.mark.parametrize("config", [*MODELS.values(), *MODERN.values(), replace(SMALL, positions="marian")])
def test_ctranslate2_scores_an_exported_model_alike(
    config: ModelConfig, tokenizers: Tokenizers, tmp_path: Path, toy_pairs: list[tuple[str, str]]
) -> None:
    model = random_model(tmp_path / "ours", config, tokenizers)
    export(model, "ctranslate2", tmp_path / "theirs")
    assert_scored_alike(model, tmp_path / "theirs", toy_pairs[:10])


@pytest.mark.skipif(not HAS_CTRANSLATE2, reason="needs CTranslate2: pip install ctranslate2")
@pytest.mark.parametrize("config", [*MODELS.values(), NARROW_DECODER])
def test_a_model_comes_back_from_ctranslate2_bit_by_bit(
    config: ModelConfig, tokenizers: Tokenizers, tmp_path: Path, toy_pairs: list[tuple[str, str]]
) -> None:
    model = random_model(tmp_path / "ours", config, tokenizers)
    export(model, "ctranslate2", tmp_path / "theirs")
    write(read(str(tmp_path / "theirs"), ImportOptions()), tmp_path / "back")
    back = read_model(tmp_path / "back")
    assert back.identity.config == model.identity.config
    target, returned = model.identity.tokenizers.target, back.identity.tokenizers.target
    assert replace(returned.vocabulary, start=target.vocabulary.start) == target.vocabulary
    before, after = weights(model.transformer), weights(back.transformer)
    for tensors in (before, after):
        if "output_bias" in tensors:  # CTranslate2 excludes entries by a bias
            tensors["output_bias"].detach()[[*target.vocabulary.never]] = 0.0
    assert_equal_tensors(before, after)
    sources = [(one.identity.tokenizers.source, source) for one in (model, back) for source, _ in toy_pairs]
    ids = [source.encode(source.prepare(line)) for source, line in sources]
    assert ids[: len(toy_pairs)] == ids[len(toy_pairs) :]


@pytest.mark.skipif(not HAS_CTRANSLATE2, reason="needs CTranslate2: pip install ctranslate2")
def test_rounding_to_int8_leaves_the_model_as_it_was(tokenizers: Tokenizers, tmp_path: Path) -> None:
    model = random_model(tmp_path / "ours", SMALL, tokenizers)
    before = {name: tensor.clone() for name, tensor in weights(model.transformer).items()}
    export(model, "ctranslate2", tmp_path / "theirs", "int8")
    assert_equal_tensors(before, weights(model.transformer))


@pytest.mark.skipif(not HAS_CTRANSLATE2, reason="needs CTranslate2: pip install ctranslate2")
def test_a_start_of_zeros_goes_through_transformers_and_ctranslate2s_converter_unharmed(
    toy_tokenizers: Callable[..., Tokenizers], tmp_path: Path, toy_pairs: list[tuple[str, str]]
) -> None:
    config = replace(SMALL, start="zeros", activation="swish", attention_bias=True, output_bias=True)
    model = random_model(tmp_path / "ours", config, toy_tokenizers())
    assert export(model, "huggingface", tmp_path / "hf") == []
    converter = importlib.import_module("ctranslate2").converters.TransformersConverter(str(tmp_path / "hf"))
    converter.convert(str(tmp_path / "theirs"))
    assert_scored_alike(model, tmp_path / "theirs", toy_pairs[:10], never=False, end=["</s>"])
    for name in ("source.spm", "target.spm"):
        shutil.copy(tmp_path / "hf" / name, tmp_path / "theirs")
    back = read(str(tmp_path / "theirs"), ImportOptions("en", "de"))
    assert (back.config.start, back.config.positions) == ("zeros", "sinusoidal")
    assert not back.tokenizers.recipe.bare_source  # users of these models append the end token
    matrix = weights(model.transformer)["output_matrix"]
    assert torch.equal(back.tensors["output_matrix"], matrix[: len(back.tensors["output_matrix"])])


def assert_scored_alike(
    model: LoadedModel,
    folder: Path,
    pairs: list[tuple[str, str]],
    never: bool = True,
    end: Sequence[str] = (),
) -> None:
    """Check that log-probabilities are those of CTranslate2, with `never` without unused entries."""
    source, target = model.identity.tokenizers.source, model.identity.tokenizers.target
    ids = [(source.encode(one), target.encode(other)) for one, other in pairs]
    theirs = importlib.import_module("ctranslate2").Translator(str(folder), device="cpu")
    sources = [[*(source.vocabulary.entries[i] for i in one), *end] for one, _ in ids]
    targets = [[target.vocabulary.entries[i] for i in other] for _, other in ids]
    scored = theirs.score_batch(sources, targets)
    for (one, other), result in zip(ids, scored, strict=True):
        ended = [*one, source.vocabulary.end], [*other, target.vocabulary.end]
        ours = logits(model.transformer, ended[:1], ended[1:])
        if never:
            ours[:, list(target.vocabulary.never)] = -torch.inf
        expected = ours.log_softmax(1).gather(1, torch.tensor(ended[1])[:, None])[:, 0]
        assert result.log_probs == pytest.approx(expected.tolist(), abs=1e-3)


@pytest.mark.skipif(not HAS_CTRANSLATE2, reason="needs CTranslate2: pip install ctranslate2")
def test_a_check_prints_how_many_lines_differ(
    toy_tokenizers: Callable[..., Tokenizers], tmp_path: Path, nmt: Callable[..., CompletedProcess[str]]
) -> None:
    tokenizers = random_model(tmp_path / "ours", SMALL, toy_tokenizers()).identity.tokenizers
    # Neither export has the shortlist, so the check must not use it.
    write_shortlist(tmp_path / "ours", shortlist_of([[]] * len(tokenizers.source.vocabulary)), tokenizers)
    for form in ("ctranslate2", "argos"):
        result = nmt("export", tmp_path / "ours", "--format", form, "--out", tmp_path / form, "--check")
        assert result.returncode == 0, result.stderr
        # Most translations of a random model reach the maximum length.
        assert re.match(r"\d of 50 generated lines differ; BLEU against nmt in fp32: [\d.]+\n", result.stdout)
    with zipfile.ZipFile(tmp_path / "argos" / "translate-en_de.argosmodel") as package:
        metadata = json.loads(package.read("en_de/metadata.json"))
        assert {"en_de/sentencepiece.model", "en_de/model/model.bin"} <= {*package.namelist()}
    assert (metadata["from_code"], metadata["to_code"]) == ("en", "de")
    card = (tmp_path / "argos" / "README.md").read_text(encoding="utf-8")
    assert "# A translation model for Argos Translate\n" in card
    assert 'install_from_path("translate-en_de.argosmodel")' in card


def test_a_check_that_cannot_run_is_refused_before_anything_is_written(
    toy_tokenizers: Callable[..., Tokenizers],
    tmp_path: Path,
    nmt: Callable[..., CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for config, message in (
        (EXPRESSIBLE["bergamot"], "--check needs Bergamot, and its command bergamot is not in PATH"),
        (SMALL, "Bergamot does not support this model"),
    ):
        random_model(tmp_path / message, config, toy_tokenizers())
        out = tmp_path / "theirs"
        result = nmt("export", tmp_path / message, "--format", "bergamot", "--out", out, "--check")
        assert (result.returncode, result.stderr.count("\n")) == (1, 1)
        assert message in result.stderr
        assert not out.exists()


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("argostranslate") is None,
    reason="needs Argos Translate: pip install --no-deps argostranslate stanza emoji, "
    "and pip install spacy minisbd",
)
def test_argos_translate_installs_a_package_and_translates_as_a_check_does(
    toy_tokenizers: Callable[..., Tokenizers], tmp_path: Path, toy_pairs: list[tuple[str, str]]
) -> None:
    model = random_model(tmp_path / "ours", SMALL, toy_tokenizers())
    export(model, "argos", tmp_path / "theirs")
    lines = [source for source, _ in toy_pairs[:8]]
    command = [sys.executable, str(ARGOS_TRANSLATE), *map(str, (tmp_path / "theirs").iterdir())]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True)
    translations = translator(model, "argos")(tmp_path / "theirs", lines)
    assert len({*translations}) > 1
    assert done.stdout.splitlines() == translations


@pytest.mark.parametrize("form", EXPRESSIBLE)
@pytest.mark.parametrize("variant", ["none", *VARIANTS])
def test_a_variant_comes_back_as_it_was_or_is_refused(
    form: str, variant: str, toy_tokenizers: Callable[..., Tokenizers], tmp_path: Path
) -> None:
    config = replace(EXPRESSIBLE[form], **VARIANTS.get(variant, {}))
    model = random_model(tmp_path / "ours", config, toy_tokenizers())
    if lost := losses(model, form):
        assert variant != "none", lost
        return
    export(model, form, tmp_path / "theirs")
    options = ImportOptions("en", "de") if form == "marian" else ImportOptions()
    returned = read(str(tmp_path / "theirs"), options)
    # Marian starts with a padding token whose vector is zero, so both settings of the start are right.
    start = returned.config.start if form == "huggingface" else model.identity.config.start
    assert replace(returned.config, start=start) == model.identity.config


def test_sources_without_end_token_go_to_ctranslate2_only(
    toy_tokenizers: Callable[..., Tokenizers], tmp_path: Path
) -> None:
    tokenizers = toy_tokenizers()
    bare = replace(tokenizers, recipe=replace(tokenizers.recipe, bare_source=True))
    model = random_model(tmp_path / "ours", SMALL, tokenizers)
    model = replace(model, identity=replace(model.identity, tokenizers=bare))
    for form in TOOLKITS:
        refused = "source sentences have no end token" in losses(model, form)
        assert refused == (form not in ("ctranslate2", "argos"))


@pytest.mark.parametrize("stop", [{"stop_early": True}, {"reach": 1000.0}, {}], ids=str)
def test_the_own_search_of_a_model_returns_from_hugging_face(
    toy_tokenizers: Callable[..., Tokenizers], tmp_path: Path, stop: Mapping[str, Any]
) -> None:
    lengths = {"length_rule": "power", "length_penalty": 0.6, "cap_ratio": 0.0, "cap_extra": 98}
    own = {"beam": 6, "unknown": True, **lengths, **stop}
    model = random_model(tmp_path / "ours", SMALL, toy_tokenizers())
    model = replace(model, description={**model.description, "search": own})
    export(model, "huggingface", tmp_path / "theirs")
    for options in (ImportOptions(), ImportOptions(source_lang="fr")):
        assert read(str(tmp_path / "theirs"), options).search == own


def test_symbols_are_lost_where_only_sentencepiece_reads_texts(
    toy_tokenizers: Callable[..., Tokenizers], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizers = toy_tokenizers()
    coded = replace(tokenizers, recipe=replace(tokenizers.recipe, symbols=(">>de<<",)))
    model = random_model(tmp_path / "ours", EXPRESSIBLE["marian"], tokenizers)
    model = replace(model, identity=replace(model.identity, tokenizers=coded))
    message = "SentencePiece does not find the symbol >>de<< in a text"
    assert [form for form in TOOLKITS if message in losses(model, form)] == ["marian", "argos", "bergamot"]
    monkeypatch.setattr(
        marian, "numbered_alike", lambda tokenizers: False
    )  # then it writes YAML vocabularies
    assert message not in losses(model, "marian")


def test_an_unsupported_feature_is_named_and_nothing_is_written(
    tokenizers: Tokenizers, tmp_path: Path
) -> None:
    windowed = replace(SMALL, window=4, key_width=4, tie="decoder")
    model = random_model(tmp_path / "ours", windowed, tokenizers)
    window, widths = "window is 4", {"huggingface": "d_k is 4", "ctranslate2": "d_v is 8"}
    for form, problem in widths.items():
        with pytest.raises(UserError, match=problem) as error:
            export(model, form, tmp_path / "theirs")
        assert window in str(error.value)
    for config in (replace(MODELS["pre-norm, biases"], tie=tie) for tie in ("decoder", "none")):
        model = random_model(tmp_path / "ours", config, tokenizers)
        with pytest.raises(UserError, match=rf"model\.tie is {config.tie} in a pre-norm model"):
            export(model, "huggingface", tmp_path / "theirs")
    coarse = replace(SMALL, norm_epsilon=1e-3, positions="marian")
    model = random_model(tmp_path / "coarse", coarse, tokenizers)
    epsilon = r"model\.norm_epsilon is 0\.001"
    with pytest.raises(UserError, match=rf"{epsilon}, model\.positions is marian"):
        export(model, "huggingface", tmp_path / "theirs")
    with pytest.raises(UserError, match=rf"{epsilon}, model\.start is mark\. Use format ctranslate2"):
        export(model, "marian", tmp_path / "theirs")
    assert {path.name for path in tmp_path.iterdir()} == {"ours", "coarse"}


@pytest.mark.parametrize("form", TOOLKITS)
@pytest.mark.parametrize("name", ["activation", "positions", "norm", "norm_kind", "decoder_history", "start"])
def test_a_choice_that_no_format_knows_is_refused(
    form: str, name: str, toy_tokenizers: Callable[..., Tokenizers], tmp_path: Path
) -> None:
    """A choice that is new in nmt must not become the wrong one, or a name that a toolkit does not have."""
    known = random_model(tmp_path / "ours", EXPRESSIBLE.get(form, SMALL), toy_tokenizers())
    assert losses(known, form) == []
    config = replace(known.identity.config)
    object.__setattr__(config, name, "new")
    model = replace(known, identity=replace(known.identity, config=config))
    assert f"model.{name} is new" in losses(model, form)


def test_activations_have_the_names_and_values_of_transformers() -> None:
    from transformers.activations import ACT2FN

    inputs = torch.linspace(-4, 4, 101)
    assert {*huggingface.ACTIVATION_NAMES} == {*layers.ACTIVATIONS}
    for ours, theirs in huggingface.ACTIVATION_NAMES.items():
        assert torch.allclose(ACT2FN[theirs](inputs), layers.ACTIVATIONS[ours](inputs), atol=1e-6)
    for theirs, ours in ACTIVATIONS.items():  # those that are imported
        assert torch.allclose(ACT2FN[theirs](inputs), layers.ACTIVATIONS[ours](inputs), atol=1e-6)


def test_pre_norm_is_refused_for_marian_which_normalises_only_queries(
    tokenizers: Tokenizers, tmp_path: Path
) -> None:
    model = random_model(tmp_path / "ours", replace(EXPRESSIBLE["marian"], norm="pre"), tokenizers)
    assert losses(model, "marian") == ["model.norm is pre"]


def test_a_decoder_of_another_shape_is_refused_if_the_format_cannot_have_it(
    tokenizers: Tokenizers, tmp_path: Path
) -> None:
    apart = replace(EXPRESSIBLE["marian"], decoder_heads=2, decoder_feed_forward=40)
    model = random_model(tmp_path / "ours", apart, tokenizers)
    for form in ("marian", "bergamot"):
        assert losses(model, form) == ["model.decoder_heads is 2", "model.decoder_feed_forward is 40"]
    # The width of heads is width / heads in the encoder only.
    model = random_model(tmp_path / "widths", NARROW_DECODER, tokenizers)
    assert losses(model, "huggingface") == ["model.d_k is 8", "model.d_v is 8"]
    assert losses(model, "ctranslate2") == []


def test_a_model_of_characters_cannot_be_exported(toy_dataset: Path, tmp_path: Path) -> None:
    model = random_model(tmp_path / "ours", SMALL, load_tokenizers(toy_dataset / TOKENIZERS))
    with pytest.raises(UserError, match="tokeniser is char, not SentencePiece"):
        export(model, "huggingface", tmp_path / "theirs")


def test_export_and_import_commands_restore_a_model(
    toy_tokenizers: Callable[..., Tokenizers], tmp_path: Path, nmt: Callable[..., CompletedProcess[str]]
) -> None:
    random_model(tmp_path / "ours", SMALL, toy_tokenizers())
    there = ("export", tmp_path / "ours", "--format", "huggingface", "--out", tmp_path / "theirs")
    result = nmt(*there)
    assert result.returncode == 0
    assert "Do not convert this folder with CTranslate2's converter" in result.stderr
    again = nmt(*there)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "is not empty. Remove it" in again.stderr
    result = nmt("import", tmp_path / "theirs", "--source-lang", "fr", "--out", tmp_path / "other")
    assert "nmt.json and nmt-tokenizer were not used" in result.stderr
    shutil.rmtree(tmp_path / "other")
    (tmp_path / "theirs" / "nmt.json").unlink()
    with pytest.raises(UserError, match=r"nmt\.json is missing"):
        read(str(tmp_path / "theirs"), ImportOptions())
    shutil.rmtree(tmp_path / "theirs" / "nmt-tokenizer")
    result = nmt("import", tmp_path / "theirs", "--out", tmp_path / "plain")
    assert result.returncode == 0
    assert "Hugging Face Marian, en-de" in result.stderr
    assert "beam 4" in result.stderr
    assert own_search(tmp_path / "plain")["length_rule"] == "power"
    with load(tmp_path / "plain", device="cpu", threads=1) as model:
        assert model.config.search.cap_extra == 510
        assert model.translate([""]) == [""]
    refused = nmt("import", tmp_path / "plain", "--out", tmp_path / "other")
    assert refused.stderr.startswith(f"Error: {tmp_path / 'plain'} is a model folder of nmt already")
    assert not (tmp_path / "other").exists()
