"""Random models of other toolkits, with real SentencePiece models, and what several tests do with them."""

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sentencepiece
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nmt_cli.checkpoints.model_folder import LoadedModel
from nmt_cli.data.dataset import TOKENIZERS
from nmt_cli.decoding.config import InputConfig, SearchConfig, TranslateConfig
from nmt_cli.engine.decoder import Decoder
from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import ImportOptions
from nmt_cli.interop.importing import read
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from nmt_cli.text.tokenizers import Tokenizers, load_tokenizers
from nmt_cli.translation.lines import Translation
from nmt_cli.translation.translator import Translator
from tests.checks import refusal
from tests.interop.fake_hub import FakeHub, Repository, served, used

if TYPE_CHECKING:  # transformers takes seconds to load, even if none of its tests runs
    from transformers import MarianMTModel

CODES = [">>fra<<", ">>deu<<"]
ENDING, END_BIAS = 2.5, 4.5
"""Make translations end."""

AS_THEIRS: dict[str, Any] = {"length_rule": "power", "cap_ratio": 0.0, "unknown": True}
"""Search settings of transformers."""

LANGUAGES = ["ace_Arab", "deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans"]
LETTERS = {"source": "abdefgil", "target": "nprstäöeu"}

SHAPE: dict[str, Any] = {
    **{"d_model": 32, "max_position_embeddings": 64, "scale_embedding": True},
    **{"encoder_layers": 3, "encoder_ffn_dim": 48, "encoder_attention_heads": 4},
    **{"decoder_layers": 2, "decoder_ffn_dim": 48, "decoder_attention_heads": 4},
}
"""Settings of small models of transformers."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    """Return a Hub on this machine that downloads and uploads use, without a token."""
    with served() as hub, used(hub.address, tmp_path / "cache"):
        yield hub


@pytest.fixture(scope="session")
def toy_tokenizers(
    toy: str, make: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Tokenizers]:
    """Return a function that makes SentencePiece tokenisers of the toy corpus, joint or separate."""

    @cache
    def toy_tokenizers(joint: bool = True) -> Tokenizers:
        out = tmp_path_factory.mktemp("toy_tokenizers") / "dataset"
        size, shared = "tokenizer.vocab_size=64", f"tokenizer.joint={str(joint).lower()}"
        make(out, [toy], "tokenizer.kind=sentencepiece", size, shared)
        return load_tokenizers(out / TOKENIZERS)

    return toy_tokenizers


def logits(model: Transformer, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> Tensor:
    """Return the logits of all target tokens of all pairs, in order, `[tokens, entries]`."""
    layouts = (Layout.of([len(ids) for ids in side]) for side in (sources, targets))
    source, target = (torch.tensor(list(chain(*side))) for side in (sources, targets))
    with torch.no_grad():
        return model.logits(model(source, target, *layouts))


@torch.no_grad()
def assert_logits_are_theirs(
    theirs: Any,
    ours: LoadedModel,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    within: float = 1e-4,
) -> None:
    """Check the logits of each pair in double precision. `theirs` is a transformers model."""
    double, start = deepcopy(theirs).double(), theirs.config.decoder_start_token_id
    inputs = [[start, *target[:-1]] for target in targets]
    rows = [
        double(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([shifted])).logits[0]
        for source, shifted in zip(sources, inputs, strict=True)
    ]
    expected = torch.cat(rows)
    assert expected.std() > 0.5
    assert (logits(deepcopy(ours.transformer).double(), sources, targets) - expected).abs().max() <= within


def generated(
    model: Any, sources: Sequence[list[int]], beam: int, **options: Any
) -> list[tuple[list[int] | None, float | None]]:
    """Return (ids, score) of each translation by transformers. Ids have no special tokens, and are None
    without an end token. With a beam of 1, the score is None."""
    rows = pad_sequence([torch.tensor(ids) for ids in sources], batch_first=True, padding_value=-1)
    out = model.generate(
        input_ids=rows.masked_fill(rows < 0, model.config.pad_token_id),
        attention_mask=(rows >= 0).long(),
        num_beams=beam,
        do_sample=False,
        early_stopping="never" if beam > 1 else False,
        output_scores=True,
        return_dict_in_generate=True,
        **options,
    )
    scores = out.sequences_scores.tolist() if beam > 1 else [None] * len(sources)
    tokens, end = [ids[1:] for ids in out.sequences.tolist()], model.config.eos_token_id
    translations = [ids[: ids.index(end)] if end in ids else None for ids in tokens]
    return list(zip(translations, scores, strict=True))


def translations(
    model: LoadedModel, lines: list[str], beam: int, *, prefix: bool = False
) -> list[Translation]:
    """Return our translations with the search of `generated`, a minimum of 6 tokens and a maximum of 38."""
    search = SearchConfig(beam=beam, length_penalty=1.0, min_length=6, cap_extra=38, **AS_THEIRS)
    config, models = TranslateConfig(search=search, input=InputConfig(prefix=prefix)), [model.transformer]
    return Translator(model.identity.tokenizers, models, config).translate(Decoder.of(models), lines)


def assert_found(
    expected: Sequence[tuple[list[int] | None, float | None]], found: Sequence[Translation]
) -> set[tuple[int, ...]]:
    """Check ids and scores of our translations against those of `generated`. Return the ids that end."""
    ended = set()
    for (ids, score), translation in zip(expected, found, strict=True):
        if ids:
            best = translation.candidates[0]
            assert [*best.parts[0].tokens] == ids
            assert score is None or best.score == pytest.approx(score, abs=1e-4)
            ended.add(tuple(ids))
    return ended


def assert_equal_tensors(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
    """Check that both have the same names and bits."""
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def repository(folder: Path, **options: Any) -> Repository:
    """Return a repository with the files in `folder`."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return Repository(files, **options)


def assert_refused(source: Path | str, message: str = ".", options: ImportOptions | None = None) -> None:
    """Check that the import fails with an error of one line that matches `message`."""
    assert re.search(message, refusal(read, str(source), options or ImportOptions()))


def assert_mutations_refused(
    folder: Path, names: Sequence[str], times: int, options: ImportOptions, most: int = 1 << 30
) -> None:
    """Check that, with a damaged file, the import succeeds or fails with an error of one line. Change a byte
    of each of the files `names`, or cut the file there, `times` times. Every other byte is in the first
    `most`."""
    chosen = random.Random(times)
    for name in names:
        whole = (folder / name).read_bytes()
        for number in range(times):
            changed = bytearray(whole)
            offset = chosen.randrange(min(len(whole), most) if number % 2 else len(whole))
            changed[offset] = chosen.randrange(256)
            (folder / name).write_bytes(changed[:offset] if number % 5 == 0 else changed)
            try:
                read(str(folder), options)
            except UserError as error:
                assert "\n" not in str(error)
        (folder / name).write_bytes(whole)


def words(side: str, count: int = 120) -> list[str]:
    chosen = random.Random(side)
    return ["".join(chosen.choices(LETTERS[side], k=2 + i % 6)) for i in range(count)]


def sentences(side: str, count: int, seed: int = 1) -> list[str]:
    chosen, lexicon = random.Random(seed), words(side)
    return [" ".join(chosen.choices(lexicon, k=1 + i % 9)) for i in range(count)]


def spm(folder: Path, side: str, size: int = 90) -> Path:
    """Return a SentencePiece model of one side, as for OPUS-MT: no normalisation, and </s> is 0."""
    text = folder / f"{side}.txt"
    text.write_text("".join(f"{line}\n" for line in sentences(side, 300)), encoding="utf-8")
    marks: dict[str, Any] = {"bos_id": -1, "eos_id": 0, "unk_id": 1}
    sentencepiece.SentencePieceTrainer.train(
        input=text, model_prefix=folder / side, vocab_size=size, minloglevel=3, **marks
    )
    text.unlink()
    (folder / f"{side}.vocab").unlink()
    return (folder / f"{side}.model").rename(folder / f"{side}.spm")


def pieces(path: Path) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def spread_weights(model: nn.Module) -> None:
    """Set weights so that translations differ."""
    spreads = {"layer_norm.weight": 0.2, "bias": 0.02, "fc1.weight": 0.2, "fc2.weight": 0.2}
    spreads["proj.weight"] = 0.5
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name:
            spread = next((spread for ending, spread in spreads.items() if name.endswith(ending)), 0.3)
            nn.init.normal_(parameter, mean=float("norm.weight" in name), std=spread)


def marian_folder(folder: Path, vocabularies: str = "shared", **settings: Any) -> "MarianMTModel":
    """Write and return a Marian model like `transformers`. `vocabularies` are shared, separate, or untied."""
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True)
    spms = {side: spm(folder, side) for side in LETTERS}
    entries = {side: pieces(path) for side, path in spms.items()}
    separate = vocabularies == "separate"
    if separate:
        lists = [entries["source"] + CODES, entries["target"]]
    else:
        merged = sorted({*entries["source"], *entries["target"], *CODES} - {"</s>", "<unk>"})
        random.Random(4).shuffle(merged)
        lists = [["</s>", "<unk>", *merged]]
    rotate = settings.pop("end", 0)
    lists = [[*listed[len(listed) - rotate :], *listed[: len(listed) - rotate], "<pad>"] for listed in lists]
    for name, listed in zip(("vocab.json", "target_vocab.json"), lists, strict=False):
        text = json.dumps({piece: i for i, piece in enumerate(listed)}, ensure_ascii=False)
        (folder / name).write_text(text, encoding="utf-8")
    half = settings.pop("half", False)
    pickled = settings.pop("pickled", False)
    size, end = len(lists[-1]), lists[-1].index("</s>")
    ties = {"separate": {"share_encoder_decoder_embeddings": False}, "untied": {"tie_word_embeddings": False}}
    torch.manual_seed(7)
    ids: dict[str, Any] = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": end}
    ids |= {"forced_eos_token_id": None, "vocab_size": len(lists[0]), "decoder_vocab_size": size}
    activation = {"activation_function": "swish"}
    model = MarianMTModel(
        MarianConfig(**{**SHAPE, **ids, **activation, **ties.get(vocabularies, {}), **settings})
    )
    model.train(False)
    with torch.no_grad():
        spread_weights(model)
        nn.init.normal_(model.final_logits_bias, std=0.1)
        model.final_logits_bias[0, end] = END_BIAS
        model.model.decoder.embed_tokens.weight[size - 1] = 0.0
        for name, tensor in model.state_dict().items() if half else ():
            if "embed_positions" not in name:
                tensor.copy_(tensor.half())
    untyped: Any = model
    untyped.generation_config.update(
        num_beams=6, length_penalty=1.0, max_length=40, bad_words_ids=[[size - 1]]
    )
    untyped.generation_config.forced_eos_token_id = None
    model.save_pretrained(folder)
    if pickled:
        stored = {name: tensor.half() if half else tensor for name, tensor in model.state_dict().items()}
        torch.save(stored, folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    described = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "fr"}
    (folder / "tokenizer_config.json").write_text(json.dumps(described | {"separate_vocabs": separate}))
    return model


def nllb_codes(folder: Path, first: int) -> None:
    """Write language codes as on the Hub: after the subwords, with a mask at the end."""
    from transformers import NllbTokenizer

    typed: Any = NllbTokenizer
    typed.from_pretrained(folder, extra_special_tokens=LANGUAGES).save_pretrained(folder)
    whole = json.loads((folder / "tokenizer.json").read_text())
    added = {token["content"]: token for token in whole["added_tokens"]}
    for i, code in enumerate([*LANGUAGES, "<mask>"], start=first):
        added[code]["id"] = i
    whole["added_tokens"] = sorted(added.values(), key=lambda token: token["id"])
    (folder / "tokenizer.json").write_text(json.dumps(whole, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "NllbTokenizer"}))
    codes = {"additional_special_tokens": LANGUAGES}
    (folder / "special_tokens_map.json").write_text(json.dumps(codes))


def m2m100_folder(folder: Path, kind: str) -> Any:
    """Write and return a random multilingual model as on the Hub. `kind` is nllb or m2m100."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

    m2m100_codes = FAIRSEQ_LANGUAGE_CODES["m2m100"]
    folder.mkdir(parents=True)
    text = folder / "text"
    text.write_text("".join(f"{line}\n" for side in LETTERS for line in sentences(side, 300)))
    name = "sentencepiece.bpe"
    sentencepiece.SentencePieceTrainer.train(
        input=text, model_prefix=folder / name, model_type="bpe", vocab_size=120, minloglevel=3
    )
    for left in (text, folder / f"{name}.vocab"):
        left.unlink()
    entries = ["<s>", "<pad>", "</s>", "<unk>", *pieces(folder / f"{name}.model")[3:]]
    if kind == "nllb":
        nllb_codes(folder, len(entries))
        unnamed = len(entries) + len(LANGUAGES)  # but for <mask>
    else:
        ids = {piece: i for i, piece in enumerate(entries)}
        (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False))
        written = {"additional_special_tokens": [f"__{code}__" for code in m2m100_codes]}
        (folder / "special_tokens_map.json").write_text(json.dumps(written))
        unnamed = len(entries) + len(m2m100_codes)
    torch.manual_seed(5)
    model: Any = M2M100ForConditionalGeneration(M2M100Config(vocab_size=unnamed + 8, **SHAPE))
    model.train(False)
    with torch.no_grad():
        spread_weights(model)
        embeddings = model.model.shared.weight
        embeddings[:2] = 0.0  # <s> and padding: like entries without a name, they are never produced
        embeddings[unnamed:] = 0.0
        model.model.decoder.layer_norm.bias += ENDING * embeddings[2]
    model.generation_config.update(num_beams=5, max_length=40)
    model.save_pretrained(folder)
    return model
