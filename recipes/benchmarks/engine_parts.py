"""Time the engine with each of its parts switched off. Print a table.

python -m recipes.benchmarks.engine_parts [PART ...] [--processor avx2]

A student (`recipes/distillation/ssru-6-1.toml`, beam 1) and a base model (beam 4) with random weights search
with one thread. Each part that is off is a process of its own, which compiles the engine with a simpler
substitute. Processes get the same sentences in turns. A cell is the processor time without the part, divided
by that of the whole engine: the median of the rounds. "plain search" is PyTorch without the engine, in fp32.

Parts of decoding that are one design, such as nodes, programs and steps in one call, have no substitute.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from subprocess import PIPE
from typing import Any

import click

from recipes.benchmarks import machine
from recipes.benchmarks.machine import ROOT

WHOLE = "whole engine"

JOBS = {
    "student int8, file": ("student", True, 32),
    "student fp32, file": ("student", False, 16),
    "base int8, file": ("base", True, 6),
    "base fp32, file": ("base", False, 3),
    "student int8, line": ("student", True, 1),
    "base int8, line": ("base", True, 1),
}
"""Model, whether in 8 bits, and number of sentences."""

TOKENS = 14
"""Maximum tokens of a translation."""

AVX2 = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+bmi,+bmi2,+cmov,+cx16,+cx8,+f16c,+fma,+fxsr,+lzcnt,+mmx,+movbe,"
    "+pclmul,+popcnt,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3,+xsave",
}
"""A processor with AVX2 and without AVX-512, as in the Makefile."""


def plain_products() -> None:
    """Multiply by loops that Numba compiles, without generated vector instructions."""
    import numpy as np

    from nmt_cli.engine.kernels import products

    numba, compiled = _modules()
    block, njit, OPTIONS = products.BLOCK, compiled.njit, compiled.OPTIONS

    def product(number: Any, kind: Any, of_weights: Any, together: int) -> Any:
        @njit(**OPTIONS)
        def add(rows, weights, x, stride, inputs, sums):  # type: ignore[no-untyped-def]
            weights_IO = numba.carray(at(weights), (inputs // together, block * together), of_weights)
            sums_RO = numba.carray(at(sums), (rows, block), number)
            for row in range(rows):
                x_I, sums_O = numba.carray(at(x + row * stride), inputs, kind), sums_RO[row]
                for i in range(inputs // together):
                    for o in range(block):
                        for part in range(together):
                            weight = weights_IO[i, o * together + part]
                            sums_O[o] += sums_O.dtype.type(x_I[i * together + part]) * sums_O.dtype.type(
                                weight
                            )

        return add

    at = _pointer()
    products.add_floats = product(np.float32, np.float32, np.float32, 1)
    products.add_bytes = product(np.int32, np.uint8 if products.OFFSET else np.int8, np.int8, 4)


def _modules() -> tuple[Any, Any]:
    """Return Numba and our building blocks, as modules without types."""
    import numba

    from nmt_cli.runtime.kernels import compiled

    return numba, compiled


def _pointer() -> Any:
    """Return an intrinsic that makes a pointer of an address."""
    from numba import types
    from numba.extending import intrinsic

    def pointer(context, address):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

        return types.voidptr(address), generate

    return intrinsic(pointer)


def whole_rows() -> None:
    """Multiply all inputs of a row at once, however many weights they read."""
    from nmt_cli.engine.kernels import products

    products.INPUTS_AT_ONCE = 1 << 40


def library_exp() -> None:
    """Use the `exp` of the C library."""
    import math

    import numpy as np

    _, compiled = _modules()

    def exp(x):  # type: ignore[no-untyped-def]
        return np.float32(math.exp(x))

    compiled.exp = compiled.njit(**compiled.OPTIONS)(exp)


def plain_maximum() -> None:
    """Find the maximum of floats by comparing floats."""
    _, compiled = _modules()

    def maximum(x_V):  # type: ignore[no-untyped-def]
        highest = x_V[0]
        for v in range(len(x_V)):
            highest = max(highest, x_V[v])
        return highest

    compiled.maximum = compiled.njit(**compiled.OPTIONS)(maximum)


def one_step_per_call() -> None:
    """Return to Python after each token."""
    from nmt_cli.engine import search

    search.STEPS = 1


SUBSTITUTES: dict[str, Callable[[], None]] = {
    "generated vector instructions": plain_products,
    "512 inputs at once": whole_rows,
    "vectorised exp": library_exp,
    "vectorised maximum": plain_maximum,
    "16 steps per call": one_step_per_call,
}
WITHOUT_VNNI, PLAIN = "VNNI", "plain search"
PARTS = [*SUBSTITUTES, WITHOUT_VNNI, PLAIN]


@click.command(help=machine.method(__doc__), context_settings={"show_default": True})
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--processor", type=click.Choice(["", "avx2"]), default="", help="Leave out AVX-512.")
@click.option("--rounds", default=5)
def main(parts: Sequence[str], processor: str, rounds: int) -> None:
    """Measure each part."""
    machine.begin("engine_parts")
    environment = AVX2 if processor else {}
    names = [WHOLE, *(parts or PARTS)]
    machine.print_head("without", *JOBS)
    whole = _Process(WHOLE, environment)
    for name in names[1:]:
        if name == WITHOUT_VNNI and processor:
            continue
        other = _Process(name, environment)
        cells = []
        for job in JOBS.values():
            ratios = []
            for _ in range(rounds + 1):
                mine, without = whole.ask(job), other.ask(job)
                ratios.append(without / mine)
            cells.append(f"{statistics.median(ratios[1:]):.2f} x")
        machine.print_row(name, *cells)
        sys.stdout.flush()
        other.stop()
    machine.print_row(WHOLE, *(f"{1000 * whole.ask(job):.1f} ms" for job in JOBS.values()))
    whole.stop()


class _Process:
    """A process with the engine, without one part."""

    def __init__(self, name: str, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "recipes.benchmarks.engine_parts", "--serve", name],
            env=os.environ | environment | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdin=PIPE,
            stdout=PIPE,
            text=True,
        )
        self._answer()

    def ask(self, job: Sequence[object]) -> float:
        """Return the processor time of a job."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return float(self._answer())

    def stop(self) -> None:
        """Close the input, and wait until the process ends."""
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()


def serve(name: str) -> None:
    """Switch a part off, then answer each job in stdin with the processor time that it takes."""
    if name == WITHOUT_VNNI:
        from llvmlite import binding

        features = binding.get_host_cpu_features().flatten()
        # Numba reads it when it is imported.
        os.environ["NUMBA_CPU_FEATURES"] = features.replace("+avx512vnni", "-avx512vnni")
    if name not in (WHOLE, PLAIN):
        from nmt_cli.runtime.kernels import loading

        # Compiled code is stored by the hash of the sources, which does not see the substitutes.
        KernelFiles: Any = loading.KernelFiles
        KernelFiles.read = KernelFiles.write = lambda *_: None
    if name in SUBSTITUTES:
        SUBSTITUTES[name]()
    search = _searches(name == PLAIN)
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        began = time.process_time()
        search(*job)
        print(time.process_time() - began, flush=True)


def _searches(plainly: bool) -> Callable[[str, bool, int], None]:
    """Return a function that translates random sentences by a model."""
    import torch

    from nmt_cli.api import SearchConfig, TrainConfig, preset
    from nmt_cli.config import read
    from nmt_cli.decoding.batch import ListQueue
    from nmt_cli.decoding.search.hypotheses import Sentence
    from nmt_cli.engine.decoder import Decoder
    from tests.model.models import model_of

    torch.set_num_threads(1)
    torch.manual_seed(1)
    student = read(TrainConfig, ROOT / "recipes" / "distillation" / "ssru-6-1.toml").model
    base = preset("marian-base").model
    models = {name: model_of(config, 8000).eval() for name, config in (("student", student), ("base", base))}
    decoders = {
        (name, int8): Decoder([model]) if plainly else Decoder.of([model], "int8" if int8 else "fp32")
        for name, model in models.items()
        for int8 in (False, True)
    }
    chosen = random.Random(1)
    sources = [[chosen.randrange(10, 7990) for _ in range(chosen.randint(6, 25))] for _ in range(64)]
    search = SearchConfig(max_length=TOKENS, length_rule="power", reach=1000.0, stop_early=True)

    def translate(name: str, int8: bool, count: int) -> None:
        settings = replace(search, beam=1 if name == "student" else 4)
        sentences = [Sentence(key, source) for key, source in enumerate(sources[:count])]
        for _ in range(5 if count == 1 else 1):
            for _ in decoders[name, int8].translated(settings, ListQueue(sentences)):
                pass

    return translate


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        main()
