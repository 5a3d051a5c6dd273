"""An imported model's speed: a random model of OPUS-MT's shape, by nmt, by transformers and by CTranslate2.

All translate the same lines with a beam of 4 into translations of the same length, for random weights seldom
end a sentence; CTranslate2 translates with its own conversion. They take turns, on one thread each.
"""

import argparse
import importlib.util
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

from nmt_cli.api import SearchConfig, TranslateConfig, load
from nmt_cli.interop.foreign import Wanted, write
from nmt_cli.interop.importing import read

ENTRIES = 58_100
BEAM, BATCH = 4, 32
SHAPE = {"layers": 6, "attention_heads": 8, "ffn_dim": 2048}


def made_up(count: int) -> list[str]:
    """Lines of 4 to 24 made-up words."""
    chosen = random.Random(1)
    words = ["".join(chosen.choices("abcdefgiklmnoprstu", k=chosen.randint(1, 9))) for _ in range(2000)]
    return [" ".join(chosen.choices(words, k=chosen.randint(4, 24))) for _ in range(count)]


def write_theirs(folder: Path, lines: list[str]) -> None:
    """A folder as OPUS-MT's are, of random weights; words that no line has fill its vocabulary up."""
    prefix = folder / "source"
    marks: dict[str, Any] = {"bos_id": -1, "eos_id": 0, "unk_id": 1}
    SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(prefix), vocab_size=900, minloglevel=3, **marks
    )
    spm = prefix.with_suffix(".model").rename(folder / "source.spm")
    (folder / "target.spm").write_bytes(spm.read_bytes())
    processor = SentencePieceProcessor(model_file=str(spm))
    known = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    known += [f"filler{i}" for i in range(ENTRIES - len(known))]
    ids = {piece: i for i, piece in enumerate([*known, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids))
    told = {"source_lang": "en", "target_lang": "de", "tokenizer_class": "MarianTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    sides: dict[str, Any] = {
        f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in SHAPE.items()
    }
    config = MarianConfig(
        **sides, d_model=512, vocab_size=ENTRIES + 1, pad_token_id=ENTRIES, decoder_start_token_id=ENTRIES,
        eos_token_id=0, forced_eos_token_id=0, scale_embedding=True, activation_function="swish",
        max_position_embeddings=512,
    )  # fmt: skip
    torch.manual_seed(1)
    model: Any = MarianMTModel(config)
    model.generation_config.update(bad_words_ids=[[ENTRIES]])
    model.save_pretrained(folder)


def by_nmt(folder: Path, length: int, precision: Any) -> Callable[[list[str]], object]:
    """The imported model."""
    write(read(str(folder), Wanted()), folder / "ours")
    search = SearchConfig(
        beam=BEAM, length_rule="power", length_penalty=1.0, min_length=length, max_length=length
    )
    config = TranslateConfig(search=search)
    return load(folder / "ours", device="cpu", threads=1, precision=precision, config=config).translate


def by_transformers(folder: Path, length: int) -> Callable[[list[str]], object]:
    """`generate`, lines of alike lengths together."""
    tokenizer: Any = MarianTokenizer.from_pretrained(folder)
    model: Any = MarianMTModel.from_pretrained(folder)

    def translate(lines: list[str]) -> None:
        lines = sorted(lines, key=len)
        for start in range(0, len(lines), BATCH):
            batch = tokenizer(lines[start : start + BATCH], return_tensors="pt", padding=True)
            least = {"min_new_tokens": length + 1, "max_new_tokens": length + 1}
            tokenizer.batch_decode(model.generate(**batch, num_beams=BEAM, **least), skip_special_tokens=True)

    return translate


def by_ctranslate2(folder: Path, length: int, kind: str) -> Callable[[list[str]], object]:
    """Its own converter's model of the folder."""
    package = importlib.import_module("ctranslate2")
    out = str(folder / f"ctranslate2-{kind}")
    package.converters.TransformersConverter(str(folder)).convert(out, quantization=kind)
    translator = package.Translator(out, device="cpu", inter_threads=1, intra_threads=1)
    processor = SentencePieceProcessor(model_file=str(folder / "source.spm"))

    def translate(lines: list[str]) -> None:
        pieces = [[*processor.encode(line, out_type=str), "</s>"] for line in lines]
        least = {"min_decoding_length": length, "max_decoding_length": length}
        found = translator.translate_batch(pieces, beam_size=BEAM, max_batch_size=BATCH, **least)
        for each in found:
            processor.decode(each.hypotheses[0])

    return translate


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=64)
    parser.add_argument("--length", type=int, default=25, help="pieces of each translation")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = made_up(4000)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_theirs(folder, lines)
        contestants = {
            "nmt fp32": by_nmt(folder, given.length, "fp32"),
            "transformers fp32": by_transformers(folder, given.length),
        }
        if importlib.util.find_spec("ctranslate2"):
            contestants["CTranslate2 fp32"] = by_ctranslate2(folder, given.length, "float32")
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(given.rounds):
            for name, translate in contestants.items():
                began = time.perf_counter()
                translate(lines[: given.lines])
                seconds[name].append(time.perf_counter() - began)
    ours = statistics.median(seconds["nmt fp32"])
    print("| who | lines a second | nmt is |\n|---|---|---|")
    for name, each in seconds.items():
        middle = statistics.median(each)
        print(f"| {name} | {given.lines / middle:.2f} | {middle / ours:.2f} x |")


if __name__ == "__main__":
    main()
