"""Random COMET models: a tokeniser, the files of an encoder, and options of each class."""

import io
import json
import random
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram

from nmt_cli.text.subword_models.charsmap import TABLE
from nmt_cli.text.subword_models.model_file import NORMALIZER, field

LETTERS = "aaabcdeeefghiilmnoprsstuuéàßäñçжинкота漢字かなｶﾞ각"
LAYERS, WIDTH, HEADS = 3, 32, 4

SIZES = {
    "vocab_size": 402,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 64,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu",
    "pad_token_id": 1,
}

ALONE = {"class_identifier": "regression_metric", "hidden_sizes": [24, 16]}
UNIFIED = {"class_identifier": "unified_metric", "hidden_sizes": [24], "word_layer": 3}
XL = {"encoder_model": "XLM-RoBERTa-XL"}
OPTIONS: dict[str, dict[str, Any]] = {
    "comet-20": ALONE,
    "comet-22": {
        **ALONE,
        "layer_transformation": "sparsemax",
        "layer_norm": False,
        "final_activation": "Sigmoid",
    },
    "comet-max": {**ALONE, "pool": "max", "layer": 2},
    "comet-default": {**ALONE, "pool": "default", "layer": 1, "activations": "Sigmoid"},
    "comet-qe": {**ALONE, "class_identifier": "referenceless_regression_metric", "pool": "cls"},
    "kiwi-22": {**UNIFIED, "input_segments": ["mt", "src"], "word_level_training": True, "layer_norm": False},
    "kiwi-23-xl": {**UNIFIED, **XL, "input_segments": ["mt", "src"], "patched": True},
    "unified": {**UNIFIED, "input_segments": ["mt", "src", "ref"], "sent_layer": 3},
    "unified-ref": {**UNIFIED, "input_segments": ["mt", "ref"]},
    "xcomet": {
        "class_identifier": "xcomet_metric",
        "encoder_model": "XLM-RoBERTa",
        "hidden_sizes": [24],
        "word_layer": 2,
    },
    "xcomet-xl": {"class_identifier": "xcomet_metric", **XL, "hidden_sizes": [24], "word_layer": 3},
}
"""Options of COMET's classes, with all ways to use the layers, to pool and to join sentences."""


def lines(count: int, seed: int, longest: int = 12) -> list[str]:
    """Return random lines, of which some are empty, some very long, and some unusual."""
    chosen = random.Random(seed)
    words = ["".join(chosen.choices(LETTERS, k=chosen.randint(1, 6))) for _ in range(300)]
    unusual = [
        "",
        "   ",
        "<s> <pad> a</s><mask>",
        "a\u0300\u0301 ｶﾞ e\u0301",
        "\u200b ﬁ ① …",
        "x\u00a0\u3000y",
        "😀 \u1112\u1161\u11ab",
    ]
    made = [" ".join(chosen.choices(words, k=chosen.randint(1, longest))) for _ in range(count)]
    for number in range(0, count, 20):
        made[number] = chosen.choice([*unusual, " ".join(chosen.choices(words, k=600))])
    return made


def write_encoder(folder: Path) -> None:
    """Write the tokeniser, in both forms, and the configuration of a small encoder to `folder`."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines(3000, seed=1)),
        model_writer=out,
        vocab_size=400,
        normalization_rule_name="nmt_nfkc",
        minloglevel=3,
        hard_vocab_limit=False,
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sentencepiece.bpe.model").write_bytes(out.getvalue())
    fast_tokenizer(out.getvalue()).save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(SIZES))


def fast_tokenizer(model: bytes) -> Tokenizer:
    """Return XLM-RoBERTa's tokeniser in Hugging Face's library, as its repository describes it."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    numbers = range(3, processor.get_piece_size())
    pieces = [(processor.id_to_piece(i), processor.get_score(i)) for i in numbers]
    special = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    tokenizer = Tokenizer(Unigram([*special, *pieces, ("<mask>", 0.0)], unk_id=3))
    tokenizer.normalizer = normalizers.Precompiled(field(field(model, NORMALIZER), TABLE))
    words, spaces = pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, spaces])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    mask = AddedToken("<mask>", lstrip=True, normalized=False)
    tokenizer.add_special_tokens([*(name for name, _ in special), mask])
    return tokenizer
