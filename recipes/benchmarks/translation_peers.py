"""A process that translates with one of several toolkits.

python translation_peers.py KIND FOLDER WORKERS     loads, then answers one request per line

FOLDER holds our model and the files of `translation_processes`. Only sources contain the end token. This
file also runs in the virtual environments of other toolkits, so it imports nmt_cli when needed.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

if TYPE_CHECKING:
    from nmt_cli.runtime.devices import Precision

END, BANNED = 0, 1
"""The end token also starts translations. The banned token is in no text and serves as padding."""

BEAMS = (4, 1)
BEAM, ALPHA, CAP = BEAMS[0], 0.6, 50
"""Beam size, the power of the length penalty, and the tokens by which a translation may be longer than its
source, or than the longest source of its batch."""

LONGEST = 1024
CTRANSLATE2 = ("ctranslate2-float32", "ctranslate2-int8")
FAIRSEQ, MARIAN = "fairseq", "marian"
OWN_RULE = "-own-rule"
"""Ours with its default rule. All others end at BEAM finished hypotheses."""

MODEL, WEIGHTS, SHAPE = "model", "weights.pt", "shape.json"
EMBEDDING, POSITIONS = "embedding", "positions"

Ids = list[list[int]]


@dataclass(frozen=True)
class Shape:
    """The architecture of a model."""

    encoder_layers: int
    decoder_layers: int
    width: int
    feed_forward: int
    heads: int
    epsilon: float
    vocabulary: int


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
    if kind in CTRANSLATE2:
        return _ctranslate2(kind, folder, workers)
    shape = Shape(**json.loads((folder / SHAPE).read_text()))
    weights = torch.load(folder / WEIGHTS, weights_only=True)
    return _marian(shape, weights) if kind == MARIAN else _fairseq(shape, weights)


def _in_batches(sources: Ids, size: int, translate: Callable[[Ids], Ids]) -> Ids:
    """Return translations in the order of `sources`. Translate in batches, the longest sentences first."""
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    targets: Ids = [[] for _ in sources]
    for start in range(0, len(order), size):
        some = order[start : start + size]
        for i, target in zip(some, translate([sources[i] for i in some]), strict=True):
            targets[i] = target
    return targets


def _until_end(ids: Sequence[int]) -> list[int]:
    some = list(ids)
    return some[: some.index(END)] if END in some else some


def _padded(sources: Ids) -> Tensor:
    return pad_sequence([torch.tensor(ids) for ids in sources], True, BANNED)


def _cap(sources: Ids) -> int:
    return max(map(len, sources)) - 1 + CAP


def _ours(kind: str, folder: Path, workers: int) -> Translate:
    """Return our engine with the others' rules and a process per worker. A single line uses this process."""
    from nmt_cli.checkpoints.model_folder import read_model
    from nmt_cli.decoding.config import BeamConfig, SearchConfig
    from nmt_cli.decoding.engine import ListQueue
    from nmt_cli.decoding.fast.packed import pack
    from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
    from nmt_cli.runtime.kernels.loading import compiled_kernels
    from nmt_cli.translation.workers.worker import Counts, NextTurn, translate_turns
    from nmt_cli.translation.workers.worker_process import WorkerProcess

    torch.set_num_threads(1)
    for subpackage in (
        "attention",
        "model.tree",
        "decoding.search",
    ):  # before any fork, as in `nmt translate`
        compiled_kernels(subpackage)
    model = read_model(folder / MODEL).transformer
    pack(model, cast("Precision", kind.removesuffix(OWN_RULE)), workers)

    own = kind.endswith(OWN_RULE)

    def translate(sources: Ids, size: int, beam: int) -> Ids:
        rule: dict[str, Any] = {"length_rule": "power", "length_penalty": ALPHA, "cap_extra": CAP}
        reach = BeamConfig().reach if own else 1000.0
        config = SearchConfig(beam=beam, rows=beam * size, reach=reach, stop_early=not own, **rule)
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        targets: Ids = [[] for _ in sources]

        class Share(ListQueue):
            """The sentences of one worker."""

            search = config

            def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
                """Store the best hypothesis."""
                assert hypotheses
                targets[sentence.key] = list(hypotheses[0].tokens)

            def gone(self, running: Sequence[Sentence]) -> Sequence[int]:
                """Return (), since no sentence is cancelled."""
                return ()

            def alone(self, count: int) -> bool:
                """Return whether there is only one sentence, so that other workers are idle."""
                return len(sources) == 1

            def lost(self, sentences: Sequence[Sentence], how: str) -> None:
                """Raise RuntimeError, since a process has ended."""
                raise RuntimeError(how)

        def work_on(work: Callable[[NextTurn], None], share: Sequence[int]) -> None:
            turns = iter([Share([Sentence(i, sources[i][:-1]) for i in share])])
            work(lambda: next(turns, None))

        if len(order) == 1:
            work_on(partial(translate_turns, [model], threads=workers), order)
            return targets
        with ExitStack() as stack, ThreadPoolExecutor(workers) as pool:
            hired = [WorkerProcess([model], Counts()) for _ in range(workers)]
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


def _with_our_norms(model: nn.Module, shape: Shape) -> None:
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = shape.epsilon


def _marian(shape: Shape, weights: dict[str, Tensor]) -> Translate:
    """Return `generate` of `transformers`, with our position embeddings."""
    from transformers import MarianConfig, MarianMTModel

    both = {"attention_heads": shape.heads, "ffn_dim": shape.feed_forward}
    settings: dict[str, Any] = {
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in both.items()},
        **{"encoder_layers": shape.encoder_layers, "decoder_layers": shape.decoder_layers},
        **{"d_model": shape.width, "vocab_size": shape.vocabulary, "max_position_embeddings": LONGEST},
        **{"scale_embedding": True, "activation_function": "relu", "pad_token_id": BANNED},
        **{"decoder_start_token_id": END, "eos_token_id": END, "forced_eos_token_id": None},
    }
    model: Any = MarianMTModel(MarianConfig(**settings))
    model.train(False)
    matrix, positions = weights.pop(EMBEDDING), weights.pop(POSITIONS)
    tensors = {f"model.{name}": value for name, value in weights.items()}
    names = ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    tensors |= dict.fromkeys((f"{name}.weight" for name in names), matrix)
    tensors |= {f"model.{side}.embed_positions.weight": positions for side in ("encoder", "decoder")}
    tensors["final_logits_bias"] = torch.zeros(1, shape.vocabulary)
    tensors["final_logits_bias"][0, BANNED] = float("-inf")
    model.load_state_dict(tensors)
    _with_our_norms(model, shape)

    def batch(beam: int, sources: Ids) -> Ids:
        padded = _padded(sources)
        rules = {"num_beams": beam, "length_penalty": ALPHA, "max_new_tokens": _cap(sources)}
        rows = model.generate(padded, attention_mask=(padded != BANNED).long(), early_stopping=True, **rules)
        return [_until_end(row[1:]) for row in rows.tolist()]

    return lambda sources, size, beam: _in_batches(sources, size, partial(batch, beam))


def _fairseq(shape: Shape, weights: dict[str, Tensor]) -> Translate:
    """Return the `SequenceGenerator` of fairseq, with our position embeddings."""
    transformer = importlib.import_module("fairseq.models.transformer")
    entries = importlib.import_module("fairseq.data").Dictionary(add_special_symbols=False)
    for number in range(shape.vocabulary):
        entries.add_symbol(str(number))
    entries.bos_index = entries.eos_index = END
    entries.pad_index = entries.unk_index = BANNED
    sizes = {"encoder_layers": shape.encoder_layers, "decoder_layers": shape.decoder_layers}
    sizes |= {f"{side}_attention_heads": shape.heads for side in ("encoder", "decoder")}
    sizes |= {"encoder_embed_dim": shape.width, "encoder_ffn_embed_dim": shape.feed_forward}
    sizes |= {f"max_{side}_positions": LONGEST for side in ("source", "target")}
    settings = SimpleNamespace(share_all_embeddings=True, **sizes)
    transformer.base_architecture(settings)
    task = SimpleNamespace(source_dictionary=entries, target_dictionary=entries)
    model = transformer.TransformerModel.build_model(settings, task).eval()
    matrix, positions = weights.pop(EMBEDDING), weights.pop(POSITIONS)
    names = ("encoder.embed_tokens", "decoder.embed_tokens", "decoder.output_projection")
    model.load_state_dict(weights | dict.fromkeys((f"{name}.weight" for name in names), matrix))
    _with_our_norms(model, shape)
    for side in (model.encoder, model.decoder):
        before = torch.zeros(BANNED + 1, shape.width)
        side.embed_positions.weights = torch.cat([before, positions])
    generator = importlib.import_module("fairseq.sequence_generator").SequenceGenerator
    of_beam = {
        beam: generator([model], entries, beam_size=beam, max_len_a=1, max_len_b=CAP - 1, len_penalty=ALPHA)
        for beam in BEAMS
    }

    def batch(beam: int, sources: Ids) -> Ids:
        lengths = torch.tensor([len(source) for source in sources])
        inputs = {"src_tokens": _padded(sources), "src_lengths": lengths}
        results = of_beam[beam].generate([model], {"net_input": inputs})
        return [_until_end(hypotheses[0]["tokens"].tolist()) for hypotheses in results]

    return lambda sources, size, beam: _in_batches(sources, size, partial(batch, beam))


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
