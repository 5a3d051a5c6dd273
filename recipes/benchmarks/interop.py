"""Time an imported model: a random model of OPUS-MT's shape, with nmt, transformers and CTranslate2.

python -m recipes.benchmarks.interop [--lines 64] [--rounds 3]

All translate the same lines with a beam of 4, on one thread, in turns. A toolkit that is not installed is
omitted. Random weights do not end sentences, so a translation is as long as its source. In nmt that is the
length of each line. transformers computes all rows of a batch until its longest sentence ends, so there it is
the longest of the batch. CTranslate2 drops finished sentences, so there it is the mean of the batch.
Processor time counts if the machine has other work. The floor is the time of the products of all rows at the
rate of nmt's product for the vocabulary, in the same run.
"""

import importlib
import importlib.util
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import torch
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

from nmt_cli.api import SearchConfig, TranslateConfig, load
from nmt_cli.decoding.fast.packed import TYPICAL_ROWS
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importers.importing import read
from nmt_cli.runtime.kernels.torch_private import laid_out
from recipes.benchmarks.machine import method, print_head, print_row, scratch

ENTRIES = 58_100
BEAM, BATCH = 4, 32
Translate = Callable[[list[str]], object]
SHAPE = {"layers": 6, "attention_heads": 8, "ffn_dim": 2048}


def made_up(count: int) -> list[str]:
    """Return `count` lines of 4 to 24 random words, the same lines each time."""
    chosen = random.Random(1)
    words = ["".join(chosen.choices("abcdefgiklmnoprstu", k=chosen.randint(1, 9))) for _ in range(2000)]
    return [" ".join(chosen.choices(words, k=chosen.randint(4, 24))) for _ in range(count)]


def write_theirs(folder: Path, lines: list[str]) -> None:
    """Write a folder like OPUS-MT's, with random weights, and subwords learnt from `lines`."""
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
    settings = {"source_lang": "en", "target_lang": "de", "tokenizer_class": "MarianTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
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


def by_nmt(folder: Path, precision: Any) -> Translate:
    """Return a function that translates by the imported model, which gets all lines at once."""
    if not (folder / "ours").exists():
        write(read(str(folder), ImportOptions()), folder / "ours")
    search = SearchConfig(beam=BEAM, length_rule="power", length_penalty=1.0, cap_ratio=1.0, cap_extra=0)
    config = TranslateConfig(search=search)
    return load(folder / "ours", device="cpu", threads=1, precision=precision, config=config).translate


def by_transformers(folder: Path, size: int, alike: bool) -> Translate:
    """Return a function that translates `size` lines at a time, sorted by length if `alike`."""
    tokenizer: Any = MarianTokenizer.from_pretrained(folder)
    model: Any = MarianMTModel.from_pretrained(folder)

    def translate(lines: list[str]) -> None:
        for some in batches(sorted(lines, key=len) if alike else lines, size):
            batch = tokenizer(some, return_tensors="pt", padding=True)
            length = batch.input_ids.shape[1]
            least = {"min_new_tokens": length, "max_new_tokens": length}
            tokenizer.batch_decode(model.generate(**batch, num_beams=BEAM, **least), skip_special_tokens=True)

    return translate


def by_ctranslate2(folder: Path, kind: str) -> Translate:
    """Return a function that translates by CTranslate2, with the model that its converter makes."""
    package = importlib.import_module("ctranslate2")
    out = str(folder / f"ctranslate2-{kind}")
    package.converters.TransformersConverter(str(folder)).convert(out, quantization=kind)
    translator = package.Translator(out, device="cpu", inter_threads=1, intra_threads=1)
    processor = SentencePieceProcessor(model_file=str(folder / "source.spm"))

    def translate(lines: list[str]) -> None:
        pieces = sorted((processor.encode(line, out_type=str) for line in lines), key=len)
        for some in batches(pieces, BATCH):
            length = round(statistics.mean(map(len, some)))
            least = {"min_decoding_length": length, "max_decoding_length": length}
            ended = [[*each, "</s>"] for each in some]
            for result in translator.translate_batch(ended, beam_size=BEAM, **least):
                processor.decode(result.hypotheses[0])

    return translate


def batches(lines: list[Any], size: int) -> Iterator[list[Any]]:
    """Yield lists of `size` lines, the last perhaps shorter."""
    return (lines[start : start + size] for start in range(0, len(lines), size))


def floor_seconds(folder: Path, lines: list[str]) -> float:
    """Return the least time for all matrix products, at the rate of the product for the vocabulary."""
    processor = SentencePieceProcessor(model_file=str(folder / "source.spm"))
    tokens = [len(processor.encode(line)) + 1 for line in lines]
    layers, width, inner = SHAPE["layers"], 512, SHAPE["ffn_dim"]
    encoded = layers * (6 * width**2 + 2 * width * inner)  # with keys and values for the decoder
    decoded = layers * (6 * width**2 + 2 * width * inner) + ENTRIES * width
    rows = sum(1 + BEAM * (length - 1) for length in tokens)  # at first there is one hypothesis
    compute = laid_out(torch.randn(ENTRIES, width), None, TYPICAL_ROWS)
    x, seconds = torch.randn(BEAM * BATCH, width), []
    with torch.inference_mode():
        for _ in range(10):
            began = time.process_time()
            compute(x)
            seconds.append(time.process_time() - began)
    rate = len(x) * ENTRIES * width / statistics.median(seconds)
    return (sum(tokens) * encoded + rows * decoded) / rate


def contestants(folder: Path) -> dict[str, Translate]:
    """Return a function that translates for each installed toolkit and setting, by name."""
    installed: dict[str, Translate] = {f"nmt {name}": by_nmt(folder, name) for name in ("fp32", "int8")}
    for name, size, alike in (
        (f"transformers, {BATCH} lines of similar lengths together", BATCH, True),
        (f"transformers, {BATCH} lines together in their order", BATCH, False),
        ("transformers, a line at a time", 1, False),
    ):
        installed[name] = by_transformers(folder, size, alike)
    for kind in ("float32", "int8") if importlib.util.find_spec("ctranslate2") else ():
        installed[f"CTranslate2 {kind}"] = by_ctranslate2(folder, kind)
    return installed


@click.command(help=method(__doc__), context_settings={"show_default": True})
@click.option("--lines", "count", default=64)
@click.option("--rounds", default=3)
def main(count: int, rounds: int) -> None:
    """Print the processor seconds and lines per second of each toolkit."""
    torch.set_num_threads(1)
    every = made_up(4000)
    lines, floors = every[:count], []
    with scratch() as folder:
        write_theirs(folder, every)
        translators = contestants(folder)
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in translators}
        for _ in range(rounds):
            floors.append(floor_seconds(folder, lines))
            for name, translate in translators.items():
                began = time.process_time(), time.perf_counter()
                translate(lines)
                runs[name].append((time.process_time() - began[0], time.perf_counter() - began[1]))
    floor = statistics.median(floors)
    medians = {name: [*map(statistics.median, zip(*both, strict=True))] for name, both in runs.items()}
    ours = ("nmt fp32", "nmt int8")
    heads = ("", "processor seconds", "lines per second", *(f"{name} / this" for name in ours))
    print_head(*heads, "of the floor in fp32")
    for name, (cpu, wall) in medians.items():
        ratios = (f"{cpu / medians[each][0]:.2f} x" for each in ours)
        print_row(name, f"{cpu:.2f}", f"{count / wall:.2f}", *ratios, f"{floor / cpu:.0%}")


if __name__ == "__main__":
    main()
