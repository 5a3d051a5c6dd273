"""Write a corpus in three languages, and a random model of the shape of NLLB.

The corpus is that of `nmt demo`. Two more languages are its German in Greek and in Cyrillic letters. Greek
only fills the vocabulary of the model, and Cyrillic is the new language.
"""

import json
import sys
from pathlib import Path

import sentencepiece
import torch
from transformers import M2M100Config, M2M100ForConditionalGeneration

from nmt_cli.demo.corpus import corpus

CODES = ["ace_Arab", "deu_Latn", "ell_Grek", "eng_Latn", "fra_Latn", "kaz_Cyrl", "zho_Hans"]
LATIN = "abcdefghijklmnopqrstuvwxyzäöüß"
GREEK = "αβγδεζηθικλμνξοπρςστυφχψϕϖϊόύϐ"
CYRILLIC = "абвгдежзийклмнопрстуфхцчшщђѓєѕ"


def alphabet(letters: str) -> dict[int, str]:
    """Return a table that replaces each letter of `LATIN`, small or capital, by one of `letters`."""
    both = zip(LATIN + LATIN[:-1].upper(), letters + letters[:-1].upper(), strict=True)
    return {ord(latin): letter for latin, letter in both}


def main(folder: Path, train: int, test: int) -> None:
    """Write `folder`/text, with this number of pairs for training and for the test, and `folder`/nllb."""
    text, model = folder / "text", folder / "nllb"
    text.mkdir(parents=True, exist_ok=True)
    model.mkdir(exist_ok=True)
    lines: list[str] = []
    for name, size in (("train", train), ("valid", min(300, test)), ("test", test)):
        pairs = corpus(name, size, seed=1)
        german = [pair.de for pair in pairs]
        languages = {
            "en": [pair.en for pair in pairs],
            "de": german,
            "el": [line.translate(alphabet(GREEK)) for line in german],
            "tyv": [line.translate(alphabet(CYRILLIC)) for line in german],
        }
        for lang, written in languages.items():
            (text / f"{name}.{lang}").write_text("".join(f"{line}\n" for line in written), "utf-8")
            lines += written if name == "train" and lang != "tyv" else []
    prefix = model / "sentencepiece.bpe"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(prefix),
        model_type="bpe",
        vocab_size=2000,
        character_coverage=1.0,
        hard_vocab_limit=False,  # a short text has fewer
        minloglevel=2,
    )
    (model / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": CODES}))
    torch.manual_seed(1)
    # The pieces, padding, the codes and the mask, rounded up to a multiple of 8.
    entries = -(-(2000 + 1 + len(CODES) + 1) // 8) * 8
    config = M2M100Config(
        vocab_size=entries,
        d_model=128,
        encoder_layers=2,
        encoder_ffn_dim=512,
        encoder_attention_heads=4,
        decoder_layers=2,
        decoder_ffn_dim=512,
        decoder_attention_heads=4,
        dropout=0.1,
        attention_dropout=0.0,
    )
    M2M100ForConditionalGeneration(config).save_pretrained(model)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
