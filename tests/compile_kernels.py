"""Compile Triton kernels for an H100, without one: python -m tests.compile_kernels attention.

It prints a line of JSON per kernel: its constants, registers, bytes of shared memory, bytes of stack (for
spilled registers), and the number of instructions. It also counts reads of 16 bytes, and accesses to 2 bytes,
of the device's memory. The other family of kernels is `pointwise`.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import triton.language as tl
from triton import compile, knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nmt_cli.attention import fused as attention
from nmt_cli.attention.groups import groups_of
from nmt_cli.attention.one_tile import fused as one_tile
from nmt_cli.attention.options import Options
from nmt_cli.attention.streaming import fused as streaming
from nmt_cli.model.pointwise import fused as pointwise
from nmt_cli.ragged import Layout

H100 = GPUTarget("cuda", 90, 32)
LENGTHS = (48, 96, 1000)

INDICES = ("ranges", "q_segments", "k_segments", "q_positions", "k_positions")
STRIDES = (
    *("q_token", "q_head", "k_token", "k_head", "v_token", "v_head", "d_out_token", "d_out_head"),
    *("dq_token", "dk_token", "dv_token", "q_row", "k_sentence", "k_node", "v_sentence", "v_node"),
)
NUMBERS = ("seen_sentence", "seen_slot", "seen_node", "hypotheses", "nodes", "heads", "first", "low", "high")
ATTENTION_TYPES = (
    dict.fromkeys(INDICES, "*i32")
    | dict.fromkeys((*STRIDES, *NUMBERS, "back", "ahead", "threshold"), "i32")
    | {"lse": "*fp32", "delta": "*fp32", "seen": "*u8", "seed": "*i64", "scale": "fp32", "amplified": "fp32"}
)
POINTWISE_TYPES = (
    dict.fromkeys(("sums", "means", "scales", "weight", "bias", "d_weights", "d_biases"), "*fp32")
    | dict.fromkeys(("tokens", "width", "threshold", "d_out_token"), "i32")
    | {"epsilon": "fp32", "amplified": "fp32", "seed": "*i64"}
)
"""Types of the arguments by name. Other arguments are pointers to bfloat16."""

Resources = dict[str, Any]


def of_attention() -> Iterator[Resources]:
    """Compile all launches of attention for heads of 64 channels, causal and with dropout."""
    x = torch.empty(1, 1, 64, dtype=torch.bfloat16)
    seed = torch.zeros((), dtype=torch.int64)
    constants = attention._arguments(x, x, x, [seed] * len(INDICES), Options(True, 0, 0.1, seed))
    layout = Layout.of(LENGTHS)
    tiles, blocks = attention.plan(groups_of(layout, layout).counts, 64, x.element_size())
    assert blocks is not None
    launches = [(kernel, tile.options) for tile in tiles for kernel in (one_tile.forward, one_tile.backward)]
    launches += [
        (k, blocks.options) for k in (streaming.forward, streaming.backward_queries, streaming.backward_keys)
    ]
    for kernel, options in launches:
        yield {**options, **_resources(kernel, constants | options, ATTENTION_TYPES, STRIDES)}


def of_pointwise() -> Iterator[Resources]:
    """Compile the kernels of bf16 training for layers of the widths of the base and the big model."""
    relu = {"PART": pointwise.PART, "ROWS": pointwise.ROWS, "COLUMNS": pointwise.COLUMNS, "WIDE": tl.float32}
    launches = [(pointwise._relu_backward_kernel, relu | {"num_warps": pointwise.WARPS})]
    for width in (512, 1024):
        constants = pointwise._constants(torch.empty(1, width), 0.1) | {"PART": pointwise.NORM_PART}
        launches += [(pointwise._normed_sum_kernel, constants)]
        launches += [(pointwise._normed_sum_backward_kernel, constants)]
    for kernel, constants in launches:
        yield _resources(kernel, constants, POINTWISE_TYPES, ("width", "d_out_token"))


def _resources(
    kernel: Any, constants: Mapping[str, Any], types: Mapping[str, str], aligned: Sequence[str] = ()
) -> Resources:
    """Compile a kernel. Pointers, and the integers whose names are in `aligned`, are multiples of 16."""
    names = list(kernel.arg_names)
    types = {name: types.get(name, "*bf16") for name in names if not name.isupper()}
    multiples = [name for name in types if types[name].startswith("*") or name in aligned]
    source = ASTSource(
        kernel,
        {name: types.get(name, "constexpr") for name in names},
        constexprs={name: constants[name] for name in names if name.isupper()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in multiples},
    )
    options = {"num_warps": constants["num_warps"], "enable_fp_fusion": True}
    compiled = compile(source, target=H100, options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as binary:
        binary.write(compiled.asm["cubin"])
        binary.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", "-sass", binary.name]
        dump = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    usage = {name: int(value) for name, value in re.findall(r"(REG|STACK):(\d+)", dump)}
    accesses = re.findall(r"\b(?:LDG|LDGSTS|STG)\.[\w.]+", dump)
    return {
        "kernel": kernel.__name__,
        "registers": usage["REG"],
        "stack": usage["STACK"],
        "shared": compiled.metadata.shared,
        "wide reads": sum(name.startswith("LD") and ".128" in name for name in accesses),
        "of 2 bytes": sum(".U16" in name for name in accesses),
        "instructions": len(re.findall(r"/\*[0-9a-f]{4,}\*/ +[@A-Z]", dump)),
    }


if __name__ == "__main__":
    families = {"attention": of_attention, "pointwise": of_pointwise}
    for line in families[sys.argv[1]]():
        print(json.dumps(line), flush=True)
