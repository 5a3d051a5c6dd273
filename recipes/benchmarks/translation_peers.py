"""A process that translates with nmt or CTranslate2.

python translation_peers.py KIND FOLDER WORKERS     loads, then answers one request per line

FOLDER holds our model and the files of `translation_processes`. Only sources contain the end token. Each
toolkit is imported only when needed, as its import is a part of the time to load.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

if TYPE_CHECKING:
    from nmt_cli.runtime.devices import Precision

END, BANNED = 0, 1
"""The end token also starts translations. The banned token is in no text."""

BEAMS = (4, 1)
BEAM, ALPHA, CAP = BEAMS[0], 0.6, 50
"""Beam size, the power of the length penalty, and the tokens by which a translation may be longer than its
source, or than the longest source of its batch."""

CTRANSLATE2 = ("ctranslate2-float32", "ctranslate2-int8")
OWN_RULE = "-own-rule"
"""Ours with its default rule. All others end at BEAM finished hypotheses."""

MODEL = "model"

Ids = list[list[int]]


Translate = Callable[[Ids, int, int], Ids]
"""Translates sources with a batch size and a beam size."""


def serve(kind: str, folder: Path, workers: int) -> None:
    """Load a translator, print the time, and answer each line of stdin. Other output goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    began = time.perf_counter()
    translate = _loaded(kind, folder, workers)
    print(json.dumps({"load_seconds": time.perf_counter() - began}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        began = time.perf_counter()
        targets = translate(request["sources"], request["batch"], request["beam"])
        seconds = time.perf_counter() - began
        answer = {"seconds": seconds, "targets": targets}
        print(json.dumps(answer), file=answers, flush=True)


def _loaded(kind: str, folder: Path, workers: int) -> Translate:
    if kind.removesuffix(OWN_RULE) in ("fp32", "int8"):
        return _ours(kind, folder, workers)
    return _ctranslate2(kind, folder, workers)


def _cap(sources: Ids) -> int:
    return max(map(len, sources)) - 1 + CAP


def _ours(kind: str, folder: Path, workers: int) -> Translate:
    """Return our engine with the others' rules and a process per worker. A single line uses this process."""
    from nmt_cli.checkpoints.model_folder import read_model
    from nmt_cli.decoding.batch import ListQueue, Queue
    from nmt_cli.decoding.config import BeamConfig, SearchConfig
    from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
    from nmt_cli.engine.decoder import Decoder
    from nmt_cli.translation.workers.worker import Counts, NextSearch, translate_turns
    from nmt_cli.translation.workers.worker_process import WorkerProcess

    torch.set_num_threads(1)
    model = read_model(folder / MODEL).transformer
    # Before any fork, as in `nmt translate`.
    decoder = Decoder.of([model], cast("Precision", kind.removesuffix(OWN_RULE)))

    own = kind.endswith(OWN_RULE)

    def translate(sources: Ids, size: int, beam: int) -> Ids:
        rule: dict[str, Any] = {"length_rule": "power", "length_penalty": ALPHA, "cap_extra": CAP}
        reach = BeamConfig().reach if own else 1000.0
        config = SearchConfig(beam=beam, rows=beam * size, reach=reach, stop_early=not own, **rule)
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        targets: Ids = [[] for _ in sources]

        class Share(ListQueue):
            """The sentences of one worker."""

            def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
                """Store the best hypothesis."""
                assert hypotheses
                targets[sentence.key] = list(hypotheses[0].tokens)

        def lost(sentences: Sequence[Sentence], how: str) -> None:
            raise RuntimeError(how)

        def work_on(work: Callable[[NextSearch, Queue], None], share: Sequence[int]) -> None:
            turns = iter([config])
            work(lambda: next(turns, None), Share([Sentence(i, sources[i][:-1]) for i in share]))

        counts = Counts()
        counts.unfinished.value = len(order)
        if len(order) == 1:
            work_on(partial(translate_turns, lambda: decoder, counts=counts, threads=workers), order)
            return targets
        with ExitStack() as stack, ThreadPoolExecutor(workers) as pool:
            hired = [WorkerProcess(lambda: decoder, "fork", counts, lost) for _ in range(workers)]
            for process in hired:
                stack.callback(process.close)
            works = [process.translate_turns for process in hired]
            list(pool.map(work_on, works, (order[start::workers] for start in range(workers))))
        return targets

    return translate


def _ctranslate2(kind: str, folder: Path, workers: int) -> Translate:
    """Return CTranslate2, with the threads divided among its workers."""
    threads = int(os.environ["OMP_NUM_THREADS"]) // workers
    translator = importlib.import_module("ctranslate2").Translator(
        str(folder / kind), compute_type=kind.rpartition("-")[2], inter_threads=workers, intra_threads=threads
    )

    def translate(sources: Ids, size: int, beam: int) -> Ids:
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        waiting = []
        for start in range(0, len(order), size):
            some = [sources[i] for i in order[start : start + size]]
            rules = {"beam_size": beam, "length_penalty": ALPHA, "max_decoding_length": _cap(some)}
            pieces = [list(map(str, source)) for source in some]
            waiting += translator.translate_batch(pieces, disable_unk=True, asynchronous=True, **rules)
        targets: Ids = [[] for _ in sources]
        for i, one in zip(order, waiting, strict=True):
            targets[i] = list(map(int, one.result().hypotheses[0]))
        return targets

    return translate


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
