"""A process that translates lines with one engine: nmt, CTranslate2, Marian or Bergamot.

python championship_worker.py ENGINE FOLDER PRECISION BEAM THREADS     loads, then answers requests

Each line of stdin is a request, each line of stdout an answer, both in JSON. FOLDER is our model, or its
export for the engine. Marian and Bergamot have Pythons of their own, which lack nmt, so each engine is
imported only when needed.
"""

import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BATCH = 64
"""Sentences of a batch of CTranslate2 and Marian."""

CAP = 2
"""Maximum target tokens, as a multiple of the source tokens. Both count the end token."""

Translate = Callable[[Sequence[str]], Sequence[str]]


def serve(engine: str, folder: Path, precision: str, beam: int, threads: int) -> None:
    """Load an engine, and answer each line of stdin. Other output goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    translate = ENGINES[engine](folder, precision, beam, threads)
    print(json.dumps({}), file=answers, flush=True)
    for request in map(json.loads, sys.stdin):
        began = time.perf_counter()
        texts = translate(request["lines"])
        seconds = time.perf_counter() - began
        print(json.dumps({"seconds": seconds, "texts": list(texts)}), file=answers, flush=True)


def _nmt(folder: Path, precision: str, beam: int, threads: int) -> Translate:
    """Return nmt, which ends a search as CTranslate2 does, and prunes nothing."""
    from nmt_cli.api import SearchConfig, load

    model = load(folder, device="cpu", precision="int8" if precision == "int8" else "fp32", threads=threads)
    search = SearchConfig(
        beam=beam,
        length_rule="power",
        length_penalty=1.0,
        reach=1000.0,
        stop_early=True,
        cap_ratio=CAP,
        cap_extra=CAP,
    )
    return lambda lines: model.translate(lines, search)


def _ctranslate2(folder: Path, precision: str, beam: int, threads: int) -> Translate:
    """Return CTranslate2. The batches of a file share the threads, and a single line has all of them."""
    package = importlib.import_module("ctranslate2")
    processor = importlib.import_module("sentencepiece").SentencePieceProcessor
    source, target = (processor(model_file=str(folder / f"{side}.spm")) for side in ("source", "target"))
    kind = {"fp32": "float32", "int8": "int8"}[precision]

    def loaded(workers: int) -> Any:
        sizes = {"inter_threads": workers, "intra_threads": threads // workers}
        return package.Translator(str(folder), compute_type=kind, **sizes)

    of_line = loaded(1)
    of_file = of_line if threads == 1 else loaded(threads)

    def translate(lines: Sequence[str]) -> Sequence[str]:
        pieces = source.encode(list(lines), out_type=str)
        order = sorted(range(len(pieces)), key=lambda i: -len(pieces[i]))
        waiting = []
        for start in range(0, len(order), BATCH):
            some = [pieces[i] for i in order[start : start + BATCH]]
            waiting += (of_line if len(lines) == 1 else of_file).translate_batch(
                some,
                beam_size=beam,
                length_penalty=1.0,
                max_decoding_length=CAP * (len(some[0]) + 1),
                disable_unk=True,
                asynchronous=True,
            )
        texts = [""] * len(lines)
        for i, one in zip(order, waiting, strict=True):
            texts[i] = target.decode(one.result().hypotheses[0])
        return texts

    return translate


def _marian(folder: Path, _: str, beam: int, threads: int) -> Translate:
    """Return Marian. Its path must have no spaces."""
    vocabularies = sorted(folder.glob("vocab*.spm"))
    translator = importlib.import_module("pymarian").Translator(
        models=str(folder / "model.npz"),
        vocabs=[str(file) for file in (vocabularies[0], vocabularies[-1])],
        beam_size=beam,
        normalize=1.0,
        max_length_factor=CAP,
        mini_batch=BATCH,
        maxi_batch=100,
        maxi_batch_sort="src",
        cpu_threads=threads,
        quiet=True,
        quiet_translation=True,
    )
    return lambda lines: translator.translate(list(lines))


def _bergamot(folder: Path, _: str, beam: int, threads: int) -> Translate:
    """Return Bergamot. The package downloads a list of models when it is imported, so only its compiled
    module is loaded."""
    package = importlib.util.find_spec("bergamot")
    assert package is not None
    assert package.origin is not None
    (path,) = Path(package.origin).parent.glob("_bergamot*.so")
    found = importlib.util.spec_from_file_location("_bergamot", path)
    assert found is not None
    assert found.loader is not None
    bergamot: Any = importlib.util.module_from_spec(found)
    found.loader.exec_module(bergamot)
    settings = folder / "championship.yml"
    text = (folder / "config.intgemm8bitalpha.yml").read_text(encoding="utf-8")
    text = text.replace("beam-size: 1\n", f"beam-size: {beam}\nssplit-mode: sentence\n")
    settings.write_text(text, encoding="utf-8")
    service = bergamot.Service(bergamot.ServiceConfig(numWorkers=threads))
    model = service.modelFromConfigPath(str(settings))
    options = bergamot.ResponseOptions(qualityScores=False, alignment=False, sentenceMappings=False)

    def translate(lines: Sequence[str]) -> Sequence[str]:
        responses = service.translate(model, bergamot.VectorString(list(lines)), options)
        return [response.target.text for response in responses]

    return translate


ENGINES = {"nmt": _nmt, "ctranslate2": _ctranslate2, "marian": _marian, "bergamot": _bergamot}


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
