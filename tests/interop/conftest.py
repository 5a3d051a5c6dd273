"""Random models of other toolkits, with real SentencePiece models."""

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sentencepiece
import torch
from torch import nn

if TYPE_CHECKING:  # it takes seconds to load, also where none of these tests is run
    from transformers import MarianMTModel

CODES = [">>fra<<", ">>deu<<"]
ENDING, END_BIAS = 2.5, 4.5
"""Make translations end."""

LANGUAGES = ["ace_Arab", "deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans"]
LETTERS = {"source": "abdefgil", "target": "nprstäöeu"}


def words(side: str, count: int = 120) -> list[str]:
    chosen = random.Random(side)
    return ["".join(chosen.choices(LETTERS[side], k=2 + i % 6)) for i in range(count)]


def sentences(side: str, count: int, seed: int = 1) -> list[str]:
    chosen, known = random.Random(seed), words(side)
    return [" ".join(chosen.choices(known, k=1 + i % 9)) for i in range(count)]


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
    """Set weights with which translations differ."""
    spreads = {
        "layer_norm.weight": 0.2,
        "bias": 0.02,
        "fc1.weight": 0.2,
        "fc2.weight": 0.2,
        "proj.weight": 0.5,
    }
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name:
            spread = next((spread for ending, spread in spreads.items() if name.endswith(ending)), 0.3)
            nn.init.normal_(parameter, mean=float("norm.weight" in name), std=spread)


def random_weights(model: "MarianMTModel", end: int) -> None:
    """Set weights with which translations differ, and most of them end, after a few or many subwords."""
    spread_weights(model)
    nn.init.normal_(model.final_logits_bias, std=0.1)
    model.final_logits_bias[0, end] = END_BIAS


def marian_folder(folder: Path, vocabularies: str = "shared", **settings: Any) -> "MarianMTModel":
    """Write a Marian model like `transformers`. `vocabularies` are shared, separate, or untied."""
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True)
    spms = {side: spm(folder, side) for side in LETTERS}
    known = {side: pieces(path) for side, path in spms.items()}
    separate = vocabularies == "separate"
    if separate:
        lists = [known["source"] + CODES, known["target"]]
    else:
        merged = sorted({*known["source"], *known["target"], *CODES} - {"</s>", "<unk>"})
        random.Random(4).shuffle(merged)
        lists = [["</s>", "<unk>", *merged]]
    rotate = settings.pop("end", 0)
    lists = [
        entries[-rotate:] + entries[:-rotate] + ["<pad>"] if rotate else [*entries, "<pad>"]
        for entries in lists
    ]
    for name, entries in zip(("vocab.json", "target_vocab.json"), lists, strict=False):
        text = json.dumps({piece: i for i, piece in enumerate(entries)}, ensure_ascii=False)
        (folder / name).write_text(text, encoding="utf-8")
    half = settings.pop("half", False)
    pickled = settings.pop("pickled", False)
    size, end = len(lists[-1]), lists[-1].index("</s>")
    ties = {
        "shared": {},
        "separate": {"share_encoder_decoder_embeddings": False},
        "untied": {"tie_word_embeddings": False},
    }
    torch.manual_seed(7)
    shape = {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "d_model": 32, "max_position_embeddings": 64}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    layers = {"encoder_layers": 3, "decoder_layers": 2}
    ids = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": end}
    sizes = {"vocab_size": len(lists[0]), "decoder_vocab_size": size}
    wanted: dict[str, Any] = {**shape, **heads, **layers, **ids, **sizes, **ties[vocabularies]}
    wanted |= {"scale_embedding": True, "activation_function": "swish", "forced_eos_token_id": None}
    model = MarianMTModel(MarianConfig(**wanted | settings))
    model.train(False)
    with torch.no_grad():
        random_weights(model, end)
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
    told = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": "en",
        "target_lang": "fr",
        "separate_vocabs": separate,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return model


def nllb_codes(folder: Path, first: int) -> None:
    """Write language codes as on the Hub: after the subwords, with a mask at the end."""
    from transformers import NllbTokenizer

    typed: Any = NllbTokenizer
    typed.from_pretrained(folder, extra_special_tokens=LANGUAGES).save_pretrained(folder)
    whole = json.loads((folder / "tokenizer.json").read_text())
    added = {each["content"]: each for each in whole["added_tokens"]}
    for i, code in enumerate([*LANGUAGES, "<mask>"], start=first):
        added[code]["id"] = i
    whole["added_tokens"] = sorted(added.values(), key=lambda each: each["id"])
    (folder / "tokenizer.json").write_text(json.dumps(whole, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "NllbTokenizer"}))
    codes = {"additional_special_tokens": LANGUAGES}
    (folder / "special_tokens_map.json").write_text(json.dumps(codes))


def m2m100_folder(folder: Path, kind: str) -> Any:
    """Write a random multilingual model as on the Hub. `kind` is nllb or m2m100."""
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
    known = ["<s>", "<pad>", "</s>", "<unk>", *pieces(folder / f"{name}.model")[3:]]
    if kind == "nllb":
        nllb_codes(folder, len(known))
        unnamed = len(known) + len(LANGUAGES)  # but for <mask>
    else:
        ids = {piece: i for i, piece in enumerate(known)}
        (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False))
        written = {"additional_special_tokens": [f"__{code}__" for code in m2m100_codes]}
        (folder / "special_tokens_map.json").write_text(json.dumps(written))
        unnamed = len(known) + len(m2m100_codes)
    torch.manual_seed(5)
    shape = {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "d_model": 32, "max_position_embeddings": 64}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    layers = {"encoder_layers": 3, "decoder_layers": 2}
    wanted: dict[str, Any] = {**shape, **heads, **layers, "vocab_size": unnamed + 8, "scale_embedding": True}
    model: Any = M2M100ForConditionalGeneration(M2M100Config(**wanted))
    model.train(False)
    with torch.no_grad():
        spread_weights(model)
        embeddings = model.model.shared.weight
        embeddings[:2] = 0.0  # <s> and padding, which no translation has, nor what has no name
        embeddings[unnamed:] = 0.0
        model.model.decoder.layer_norm.bias += ENDING * embeddings[2]
    model.generation_config.update(num_beams=5, max_length=40)
    model.save_pretrained(folder)
    return model
