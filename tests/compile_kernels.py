"""Compile Triton kernels for GPUs, without one: python -m tests.compile_kernels [--width WIDTH] [TARGET ...].

It prints a line of JSON per kernel: its target, constants, registers, bytes of shared memory, bytes of
spilled registers, and for sm_90 counts of instructions. Kernels of attention have the head widths of all
presets or only WIDTH, causal order and dropout, in bf16. A target without tensor cores does not get them.
"""

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
import triton.language as tl
from triton import compile, knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nmt_cli.attention import gpu_attention as attention
from nmt_cli.attention import gpu_attention_in_a_tile as in_a_tile
from nmt_cli.attention import gpu_attention_in_blocks as in_blocks
from nmt_cli.attention.attention_options import Options
from nmt_cli.attention.gpu_attention_parts import Indices, Strided
from nmt_cli.attention.groups import groups_of
from nmt_cli.attention.projections import Heads
from nmt_cli.config import preset_names, preset_path, read
from nmt_cli.loss import gpu_row_losses as loss
from nmt_cli.model.pointwise import gpu_relu_and_dropout as pointwise
from nmt_cli.ragged import Layout
from nmt_cli.training.config import TrainConfig


class Device(NamedTuple):
    """A GPU to compile for."""

    target: GPUTarget
    shared: int
    """Bytes of shared memory that a program may use."""

    stack: int = 512
    """Bytes of spilled registers per thread that are accepted. The cache holds them."""

    tensor_cores: bool = True
    """Whether Triton uses tensor cores. Attention needs them."""

    instructions: bool = False
    """Whether to count instructions, which takes 0.3 s per kernel."""


DEVICES = {
    "sm_75": Device(GPUTarget("cuda", 75, 32), 64 << 10, tensor_cores=False),
    "sm_80": Device(GPUTarget("cuda", 80, 32), 163 << 10),
    "sm_86": Device(GPUTarget("cuda", 86, 32), 99 << 10),
    "sm_89": Device(GPUTarget("cuda", 89, 32), 99 << 10),
    "sm_90": Device(GPUTarget("cuda", 90, 32), 227 << 10, stack=0, instructions=True),
    "sm_100": Device(GPUTarget("cuda", 100, 32), 227 << 10),
    "sm_120": Device(GPUTarget("cuda", 120, 32), 99 << 10),
    "gfx942": Device(GPUTarget("hip", "gfx942", 64), 64 << 10, stack=2700),
}
LENGTHS = (48, 96, 1000)
VOCABULARY = 32_000

TOKENS = ("keys", "positions")
STRIDES = ("d_out_token", "width", "half", "stride")
NUMBERS = ("heads", "first", "back", "ahead", "threshold", "tokens", "levels")
SUMS = ("lse", "delta", "sums", "smoothed", "nlls")
TYPES = (
    dict.fromkeys(TOKENS, "*i32")
    | dict.fromkeys((*STRIDES, *NUMBERS), "i32")
    | dict.fromkeys(SUMS, "*fp32")
    | dict.fromkeys(("scale", "amplified", "factor"), "fp32")
    | {"seed": "*i64", "targets": "*i64"}
)
"""Types of the arguments by name. Other arguments are pointers to bfloat16."""

TUPLES = {
    "indices": Indices(*["*i32"] * len(Indices._fields)),
    **dict.fromkeys(("q", "k", "v", "out", "d_out", "dq", "dk", "dv"), Strided("*bf16", "i32")),  # type: ignore[arg-type]
}
"""Types of the arguments of attention that are named tuples."""

Launch = tuple[Any, dict[str, Any]]
"""A kernel and its compile-time constants."""

Resources = dict[str, Any]


def of_attention(width: int, shared: int) -> Iterator[Launch]:
    """Yield all launches of attention for heads of `width` channels, causal and with dropout."""
    constants = attention.constants(Heads(1, width, width), Options(True, 0, 0.1))
    layout = Layout.of(LENGTHS)
    tiles, blocks = attention.plan(
        groups_of(layout, layout).counts.tolist(), constants["PADDED_K"], torch.bfloat16.itemsize, shared
    )
    assert blocks is not None
    for tile in tiles:
        for kernel in (in_a_tile.forward, in_a_tile.backward):
            yield kernel, constants | tile.options
    for kernel in (in_blocks.forward, in_blocks.backward_queries, in_blocks.backward_keys):
        yield kernel, constants | blocks.options


def of_relu() -> Launch:
    """Return the launch of a ReLU's gradient, which is the same for all widths."""
    constants = {"PART": pointwise.PART, "ROWS": pointwise.ROWS, "COLUMNS": pointwise.COLUMNS}
    return pointwise._relu_backward_kernel, constants | {"WIDE": tl.float32, "num_warps": pointwise.WARPS}


def of_dropout() -> Launch:
    """Return the launch of dropout, which is the same for all widths."""
    constants = {"ROWS": pointwise.ROWS, "COLUMNS": pointwise.COLUMNS, "WIDE": tl.float32}
    return pointwise._dropped_kernel, constants | {"num_warps": pointwise.WARPS}


def of_loss(entries: int) -> Launch:
    """Return the launch of the row losses for a vocabulary."""
    constants = {"ENTRIES": entries, "SMOOTHING": 0.1, "IGNORED": -1, "GRADIENT": True, "WIDE": tl.float32}
    return loss._rows_kernel, constants | {"BLOCK": loss.MAX_BLOCK, "num_warps": loss.WARPS}


def launches(device: Device, only: int | None = None) -> Iterator[tuple[str, Launch]]:
    """Yield the width or the vocabulary, and each launch, of all presets on a device. `only` is the width of
    heads for which to yield attention. Without it, all widths are yielded."""
    if device.tensor_cores:
        widths = {read(TrainConfig, preset_path(name)).model.d_k for name in preset_names()}
        for width in sorted(widths & {only} if only else widths):
            for launch in of_attention(width, device.shared):
                yield f"{width} channels", launch
    yield "any width", of_relu()
    yield "any width", of_dropout()
    yield f"{VOCABULARY:,} entries", of_loss(VOCABULARY)


def resources(kernel: Any, constants: Mapping[str, Any], device: Device) -> Resources:
    """Compile a kernel. Return what it needs. Pointers and strides are multiples of 16, as in most models."""
    names = list(kernel.arg_names)
    own: dict[str, Any] = TYPES | ({"scale": "*fp32"} if kernel is loss._rows_kernel else {})
    own |= TUPLES if "indices" in names else {}
    types = {name: own.get(name, "*bf16") for name in names if not name.isupper()}
    multiples = [
        (names.index(name), *path)
        for name, kind in types.items()
        for path in ([(i,) for i in range(len(kind))] if isinstance(kind, tuple) else [()])
        if isinstance(kind, tuple) or kind.startswith("*") or name in STRIDES
    ]
    source = ASTSource(
        kernel,
        {name: types.get(name, "constexpr") for name in names},
        constexprs={name: constants[name] for name in names if name.isupper()},
        attrs={path: [["tt.divisibility", 16]] for path in multiples},
    )
    options = {name: constants[name] for name in ("num_warps", "num_stages") if name in constants}
    compiled = compile(source, target=device.target, options={**options, "enable_fp_fusion": True})
    found = {"shared": compiled.metadata.shared, **options}
    if device.target.backend == "hip":
        return found | _of_amd(compiled.asm["amdgcn"])
    return found | _of_nvidia(compiled, device.instructions)


def _of_amd(assembly: str) -> Resources:
    """Return the vector registers of a kernel, and the bytes of its stack for each thread."""
    numbers = {
        name: int(value)
        for name, value in re.findall(r"\.(vgpr_count|private_segment_fixed_size): +(\d+)", assembly)
    }
    return {"registers": numbers["vgpr_count"], "stack": numbers["private_segment_fixed_size"]}


def _of_nvidia(compiled: Any, instructions: bool) -> Resources:
    """Return the registers of a kernel, the bytes of its stack, and with `instructions` counts of them.

    Each of the `instructions` counts once, also if a loop repeats it. `wide reads` are reads of 16 bytes, and
    `of 2 bytes` accesses to 2 bytes, of the device's memory.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as binary:
        binary.write(compiled.asm["cubin"])
        binary.flush()
        parts = ["-res-usage", "-sass"] if instructions else ["-res-usage"]
        command = [knobs.nvidia.cuobjdump.path, *parts, binary.name]
        dump = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    usage = {name: int(value) for name, value in re.findall(r"(REG|STACK):(\d+)", dump)}
    found = {"registers": usage["REG"], "stack": usage["STACK"]}
    if instructions:
        found["instructions"] = len(re.findall(r"/\*[0-9a-f]{4,}\*/ +[^/ ]", dump))
        accesses = re.findall(r"\b(?:LDG|LDGSTS|STG)\.[\w.]+", dump)
        found["wide reads"] = sum(name.startswith("LD") and ".128" in name for name in accesses)
        found["of 2 bytes"] = sum(".U16" in name for name in accesses)
    return found


def main() -> None:
    """Print the resources of all launches on the devices that the command line names, or on all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int)
    parser.add_argument("targets", nargs="*")
    given = parser.parse_args()
    for name in given.targets or DEVICES:
        device = DEVICES[name]
        for shape, (kernel, constants) in launches(device, given.width):
            family = kernel.fn.__module__.split(".")[-1].removeprefix("gpu_")
            label = {
                **{"target": name, "kernel": f"{family}.{kernel.__name__.strip('_')}", "shape": shape},
                **{"rows": constants.get("TILE", constants.get("BLOCK", 0))},
                **{"shared limit": device.shared, "stack limit": device.stack},
            }
            print(json.dumps(label | resources(kernel, constants, device)), flush=True)


if __name__ == "__main__":
    main()
