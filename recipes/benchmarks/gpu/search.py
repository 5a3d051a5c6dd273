"""Time beam search from ids to ids with a trained model, ours or CTranslate2's.

python -m recipes.benchmarks.gpu.search OUT.json MODEL nmt|ctranslate2 [--lines TEXT]     else needs NMT_DATA
"""

import importlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch

from nmt_cli.checkpoints.finding import find_model
from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.decoding.batch import ListQueue
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Sentence
from nmt_cli.engine.decoder import Decoder
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import Precision
from recipes.benchmarks.gpu.device import kernels_of, the_device, wait
from recipes.benchmarks.translation_peers import ALPHA, BEAM, END
from recipes.benchmarks.translation_processes import export_ctranslate2
from recipes.benchmarks.translation_texts import Ids, multi30k, wmt_like

ROWS = (1024, 2048, 4096)  # hypotheses at a time, ours
BATCHES = (64, 256, 512)  # sentences at a time, CTranslate2's

Translate = Callable[[Ids], list[int]]
"""Returns the lengths of translations, with end tokens."""


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("model", type=click.Path(path_type=Path, exists=True))
@click.argument("kind", type=click.Choice(["nmt", "ctranslate2"]))
@click.option("--sentences", default=3000, show_default=True, help="Sentences of each text.")
@click.option("--lines", type=click.Path(path_type=Path, exists=True), help="Text, instead of Multi30k.")
def main(out: Path, model: Path, kind: str, sentences: int, lines: Path | None) -> None:
    """Measure, and write OUT after each run."""
    read = read_model(find_model(model))
    tokenizers = read.identity.tokenizers
    if lines:
        source = tokenizers.source
        ids = [source.encode(source.prepare(line)) for line in lines.read_text("utf-8").splitlines()]
        texts = {lines.name: [source.vocabulary.ended(each) for each in ids]}
    else:
        chosen = multi30k(tokenizers, 1000), wmt_like(tokenizers, 500)
        texts = {text.name: text.sources for text in chosen}
    result: dict[str, Any] = {"kind": kind, "runs": []}
    for name, translate in (ours if kind == "nmt" else ctranslate2)(read.transformer):
        for text, sources in texts.items():
            some = (sources * -(-sentences // len(sources)))[:sentences]
            result["runs"].append({"how": name, "text": text, **_timed(translate, some)})
            print(json.dumps(result["runs"][-1]), flush=True)
            out.write_text(json.dumps(result, indent=1))
        if kind == "nmt":
            result["step"] = kernels_of(partial(translate, next(iter(texts.values()))[:512]))


def ours(model: Transformer) -> Iterator[tuple[str, Translate]]:
    """Yield a description and a function of our search, for each precision and number of rows."""
    precisions: tuple[Precision, ...] = ("fp16", "bf16") if torch.cuda.is_available() else ("fp32",)
    for precision in precisions:
        decoder = Decoder.of([deepcopy(model).to(the_device()).eval()], precision)
        for rows in ROWS:
            config = SearchConfig(
                beam=BEAM, length_rule="power", length_penalty=ALPHA, rows=rows, reach=1000.0, stop_early=True
            )
            yield f"{precision}, {rows} rows", partial(_ours, decoder, config)


def _ours(decoder: Decoder, config: SearchConfig, sources: Ids) -> list[int]:
    waiting = ListQueue([Sentence(key, ids[:-1]) for key, ids in enumerate(sources)])
    found = decoder.translated(config, waiting)
    return [len(hypotheses[0].tokens) + 1 for _, hypotheses in found if hypotheses]


def ctranslate2(model: Transformer) -> Iterator[tuple[str, Translate]]:
    """Yield a description and a function of CTranslate2's search, with the same weights."""
    with tempfile.TemporaryDirectory() as folder:
        export_ctranslate2(model, "ctranslate2-float32", Path(folder))
        translator = importlib.import_module("ctranslate2").Translator
        for precision in ("float16", "int8_float16") if torch.cuda.is_available() else ("float32",):
            device = the_device().type
            them = translator(f"{folder}/ctranslate2-float32", device=device, compute_type=precision)
            for size in BATCHES:
                yield f"{precision}, batches of {size}", partial(_theirs, them, size)


def _theirs(translator: Any, size: int, sources: Ids) -> list[int]:
    pieces = [[*map(str, ids[:-1]), str(END)] for ids in sorted(sources, key=len, reverse=True)]
    rules = {"beam_size": BEAM, "length_penalty": ALPHA, "disable_unk": True, "max_decoding_length": 150}
    results = translator.translate_batch(pieces, max_batch_size=size, **rules)
    return [len(each.hypotheses[0]) + 1 for each in results]


def _timed(translate: Translate, sources: Ids) -> dict[str, float]:
    translate(sources[:200])
    wait()
    began = time.perf_counter()
    lengths = translate(sources)
    wait()
    seconds = time.perf_counter() - began
    return {
        "sentences_per_second": round(len(sources) / seconds, 1),
        "tokens_per_second": round(sum(lengths) / seconds),
    }


if __name__ == "__main__":
    main()
