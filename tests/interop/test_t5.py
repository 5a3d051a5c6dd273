"""T5, mT5 and MADLAD-400: ids, logits and translations are those of transformers."""

import json
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sentencepiece
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nmt_cli.checkpoints.model_folder import LoadedModel, read_model
from nmt_cli.decoding.config import TranslateConfig
from nmt_cli.engine.decoder import Decoder
from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importing import read
from nmt_cli.translation.loading import Loaded
from nmt_cli.translation.pairs import score_pairs
from nmt_cli.translation.translator import Translator
from tests.interop.conftest import (
    LETTERS,
    assert_equal_tensors,
    assert_found,
    assert_logits_are_theirs,
    assert_refused,
    generated,
    logits,
    sentences,
    translations,
)

LANGS = ("de", "fr", "pt_BR")
SHAPE: dict[str, Any] = {
    **{"d_model": 32, "d_ff": 48, "num_heads": 4, "num_layers": 3, "num_decoder_layers": 2},
    **{"n_positions": 64, "dropout_rate": 0.1},
}
KINDS: dict[str, dict[str, Any]] = {
    "t5": {"d_kv": 8, "feed_forward_proj": "relu"},
    "t5 v1.1": {"d_kv": 8, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "mt5": {"d_kv": 8, "feed_forward_proj": "gated-gelu"},
    "madlad": {"d_kv": 12, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}
TIED = ("t5", "mt5")
"""Kinds that transformers 5 saves with one matrix."""

UNKNOWN = ["…?! ÄÖ 5"]
LINES = [*sentences("source", 10, seed=3), "abba", "a  b", *UNKNOWN]
LONG = " ".join(sentences("source", 40, seed=5))


DTYPES = torch.bfloat16, torch.float16


class Pair(NamedTuple):
    kind: str
    folder: Path
    theirs: Any
    ours: LoadedModel


def spm_of(folder: Path, kind: str) -> list[str]:
    """Write `spiece.model` and return its pieces. As in MADLAD, language codes are ordinary pieces."""
    text = folder / "text"
    text.write_text("".join(f"{line}\n" for side in LETTERS for line in sentences(side, 300)))
    ids: dict[str, Any] = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    if kind == "madlad":
        ids = {"unk_id": 0, "bos_id": 1, "eos_id": 2}
    codes = [f"<2{lang}>" for lang in LANGS] if kind == "madlad" else []
    sentencepiece.SentencePieceTrainer.train(
        input=text,
        model_prefix=folder / "spiece",
        vocab_size=120,
        user_defined_symbols=codes,
        minloglevel=3,
        **ids,
    )
    for left in (text, folder / "spiece.vocab"):
        left.unlink()
    content = (folder / "spiece.model").read_bytes()
    user_defined = re.compile(rb"(<2\w+>\x15.{4}\x18)\x04", re.DOTALL)
    (folder / "spiece.model").write_bytes(user_defined.sub(b"\\1\x01", content))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    return [processor.id_to_piece(i) for i in range(len(processor))]


def t5_folder(folder: Path, kind: str) -> Any:
    """Write and return a random model as on the Hub, with eight entries that have no piece. The settings of
    mT5 are those that transformers 5 writes, and others older."""
    from transformers import MT5Config, MT5ForConditionalGeneration, T5Config, T5ForConditionalGeneration

    folder.mkdir(parents=True)
    size = len(spm_of(folder, kind))
    ids: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    if kind == "madlad":
        ids = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
    torch.manual_seed(5)
    settings = {"vocab_size": size + 8, **SHAPE, **KINDS[kind], **ids}
    model: Any = (
        MT5ForConditionalGeneration(MT5Config(**settings))
        if kind == "mt5"
        else T5ForConditionalGeneration(T5Config(**settings))
    )
    model.train(False)
    with torch.no_grad():
        if kind not in TIED:
            model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
        for name, parameter in model.named_parameters():
            large = "relative" in name or "shared" in name
            spread = 1.0 if large else 0.5 if kind in TIED and "EncDec" in name else 0.2
            nn.init.normal_(parameter, mean=float("layer_norm" in name), std=spread)
        model.lm_head.weight[ids["eos_token_id"]] *= 3.0  # so that translations end
        if kind == "mt5":  # as large as in T5, which divides them by this
            model.decoder.final_layer_norm.weight /= SHAPE["d_model"] ** 0.5
    written = model.config.to_dict()
    model.save_pretrained(folder)
    if kind == "mt5":
        return model
    old = ("scale_decoder_outputs", "transformers_version", "dtype")
    described = {name: value for name, value in written.items() if name not in old}
    described["tie_word_embeddings"] = kind == "t5"
    (folder / "config.json").write_text(json.dumps(described))
    return model


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("t5") / "theirs"
    theirs = t5_folder(folder, request.param)
    write(read(str(folder), ImportOptions("en", "de")), folder.parent / "ours")
    return Pair(request.param, folder, theirs, read_model(folder.parent / "ours"))


def their_ids(pair: Pair, lines: Sequence[str], code: str = "<2de>") -> list[list[int]]:
    """Return the ids of each line by transformers, with MADLAD's `code` at the start."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(pair.folder)
    return [tokenizer(f"{code} {line}" if pair.kind == "madlad" else line).input_ids for line in lines]


def test_lines_become_the_ids_that_their_tokeniser_gives(pair: Pair) -> None:
    source = pair.ours.identity.tokenizers.source
    for line, ids in zip(LINES, their_ids(pair, LINES), strict=True):
        if pair.kind == "madlad" and line in UNKNOWN:
            continue  # transformers 5 makes them end tokens, the unknown tokens of other T5 models
        assert [*source.encode(source.prepare(line)), source.vocabulary.end] == ids


def test_logits_are_theirs_in_double_precision(pair: Pair) -> None:
    sources, targets = their_ids(pair, [*LINES[:6], LONG]), their_ids(pair, [*LINES[4:10], LONG])
    within = 1e-3 if pair.kind == "mt5" else 1e-4  # norms stay in fp32, and mT5 does not divide their sum
    assert_logits_are_theirs(pair.theirs, pair.ours, sources, targets, within)


def options_of(pair: Pair) -> dict[str, Any]:
    """Return the options of `generate` that our search has. It never produces entries without a piece."""
    never = [*pair.ours.identity.tokenizers.target.vocabulary.never]
    return {"length_penalty": 1.0, "min_new_tokens": 6, "max_length": 40, "suppress_tokens": never}


def test_beam_search_finds_the_same_translations_with_the_same_scores(pair: Pair) -> None:
    lines = sentences("source", 40, seed=9)
    expected = generated(pair.theirs, their_ids(pair, lines), 4, **options_of(pair))
    assert len(assert_found(expected, translations(pair.ours, lines, 4))) > 20


def test_greedy_search_gives_all_200_lines_equal(pair: Pair) -> None:
    """Compare 38 tokens of translations that do not end."""
    lines = sentences("source", 200, seed=9)
    sources = [torch.tensor(ids) for ids in their_ids(pair, lines)]
    padding, end = pair.theirs.config.pad_token_id, pair.theirs.config.eos_token_id
    rows = pad_sequence(sources, batch_first=True, padding_value=padding)
    mask = (torch.arange(rows.shape[1]) < torch.tensor([[len(ids)] for ids in sources])).long()
    found = pair.theirs.generate(input_ids=rows, attention_mask=mask, num_beams=1, **options_of(pair))
    expected = [ids[: ids.index(end)] if end in ids else ids[:38] for ids in found[:, 1:].tolist()]
    ours = [[*one.candidates[0].parts[0].tokens] for one in translations(pair.ours, lines, 1)]
    assert ours == expected
    assert len({*map(tuple, ours)}) > 100


def test_values_too_large_for_fp16_are_refused_with_what_to_do(pair: Pair) -> None:
    large = deepcopy(pair.ours.transformer)
    for name, parameter in large.named_parameters():
        if "feed_forward" in name:
            parameter.data *= 300
    in_bf16, in_fp16 = (replace(pair.ours, transformer=deepcopy(large).to(dtype)) for dtype in DTYPES)
    assert all(one.text for one in translations(in_bf16, LINES, 4))
    message = "line 1: .* not finite with precision fp16.* Use precision bf16 or fp32"
    for beam in (1, 4):
        with pytest.raises(UserError, match=message):
            translations(in_fp16, LINES, beam)
    models, pairs = [in_fp16.transformer], [(line, line) for line in LINES]
    translator = Translator(pair.ours.identity.tokenizers, models, TranslateConfig())
    with pytest.raises(UserError, match=message):
        score_pairs(Loaded(translator, Decoder(models), [], None), pairs)


def test_a_line_may_name_another_target_language(tmp_path: Path) -> None:
    t5_folder(tmp_path / "theirs", "madlad")
    foreign = read(str(tmp_path / "theirs"), ImportOptions("en", "de"))
    source = foreign.tokenizers.source
    other, default = (source.encode(source.prepare(line)) for line in ("<2pt_BR> ab", "ab"))
    codes = [source.vocabulary.entries.index(f"<2{lang}>") for lang in ("pt_BR", "de")]
    assert (other[1], default[1]) == (codes[0], codes[1])
    assert other[2:] == default[2:]
    assert "chooses among 3 languages with --target-lang" in foreign.notes[0]
    everything = read(str(tmp_path / "theirs"), ImportOptions()).tokenizers
    for made in (everything, foreign.tokenizers):
        directed = made.directed(None, "pt").source
        assert directed.encode(directed.prepare("ab")) == other
    assert source.prepare("") == ""


def test_settings_of_transformers_5_and_weights_in_parts_give_the_same_model(tmp_path: Path) -> None:
    for kind in ("t5", "t5 v1.1"):
        folder = tmp_path / kind
        theirs = t5_folder(folder, kind)
        before = read(str(folder), ImportOptions("en", "de"))
        (folder / "model.safetensors").unlink()
        theirs.save_pretrained(folder, max_shard_size="30KB")
        assert len([*folder.glob("model-*.safetensors")]) > 2
        after = read(str(folder), ImportOptions("en", "de"))
        assert after.config == before.config
        assert_equal_tensors(before.tensors, after.tensors)


@pytest.mark.parametrize(
    ("version", "tied", "divided"),
    [("5.23.0", True, False), ("4.57.1", True, True), ("4.57.1", False, False), (None, True, False)],
)
def test_logits_of_mt5_are_divided_only_if_version_4_of_transformers_tied_its_embeddings(
    version: str | None, tied: bool, divided: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "theirs"
    t5_folder(folder, "mt5")
    described = json.loads((folder / "config.json").read_text())
    ids, found = [[5, 6, 7, 1], [8, 1]], list[Tensor]()
    for written in ({}, {"transformers_version": version, "tie_word_embeddings": tied}):
        (folder / "config.json").write_text(json.dumps(described | written))
        write(read(str(folder), ImportOptions("en", "de")), out := tmp_path / f"ours {len(found)}")
        found.append(logits(read_model(out).transformer, ids, ids))
    divisor = SHAPE["d_model"] ** 0.5 if divided else 1.0
    assert torch.allclose(found[1], found[0] / divisor, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "langs", "message"),
    [
        ({}, ("en", "xx"), r"has no language xx: it has de, fr, pt_BR"),
        ({"model_type": "umt5"}, ("en", "de"), "model_type is umt5"),
        ({"feed_forward_proj": "gated-relu"}, ("en", "de"), "feed_forward_proj is gated-relu"),
        ({"relative_attention_num_buckets": 8}, ("en", "de"), "num_buckets is 8, but nmt supports only 32"),
        ({"d_kv": 16}, ("en", "de"), r"q_proj.weight is \[48, 32\], not \[64, 32\]"),
        ({"num_layers": 2}, ("en", "de"), "has encoder.layers.2"),
        ({"eos_token_id": 500}, ("en", "de"), "the end token is 500"),
        ({"eos_token_id": [2]}, ("en", "de"), r"eos_token_id must be a whole number \(got \[2\]\)"),
    ],
    ids=str,
)
def test_other_models_and_damaged_settings_are_refused(
    settings: dict[str, Any], langs: tuple[str, str | None], message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "theirs"
    t5_folder(folder, "madlad")
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(described | settings))
    assert_refused(folder, message, ImportOptions(*langs))
