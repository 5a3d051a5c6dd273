"""Compile attention kernels for an H100, without one: python compile_kernels.py bfloat16 64 64.

It prints a line of JSON per kernel: its constants, registers, bytes of shared memory, bytes of stack (for
spilled registers), and the number of instructions. It also counts those that access 16 and 2 bytes of the
device's memory.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from triton import compile, knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nmt_cli.attention import fused
from nmt_cli.attention.groups import groups_of
from nmt_cli.attention.one_step import fused as one_step
from nmt_cli.attention.one_tile import fused as one_tile
from nmt_cli.attention.options import Options
from nmt_cli.attention.streaming import fused as streaming
from nmt_cli.decoding.next_token import fused as next_token
from nmt_cli.ragged import Layout

H100 = GPUTarget("cuda", 90, 32)
LENGTHS = (48, 96, 1000)
ELEMENTS = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
WHERE = ("places", "q_segments", "k_segments", "q_positions", "k_positions")
TYPES = dict.fromkeys(("lse", "delta"), "*fp32") | dict.fromkeys(WHERE, "*i32")
TYPES |= dict.fromkeys(("seen", "never"), "*u8") | dict.fromkeys(("never_row", "only_row", "tokens"), "*i64")
TYPES |= {"log_probs": "*fp32"} | dict.fromkeys(("scale", "amplified"), "fp32") | {"seed": "*i64"}
WIDTHS = ("q_token", "q_head", "k_token", "k_head", "v_token", "v_head", "d_out_token", "d_out_head")
STRIDES = (*WIDTHS, "dq_token", "dk_token", "dv_token")
OF_STEP = ("q_row", "k_sentence", "k_node", "v_sentence", "v_node", "seen_sentence", "seen_slot")
INTEGERS = (
    *STRIDES,
    *OF_STEP,
    "stride",
    "entries",
    "hypotheses",
    "nodes",
    "seen_node",
    "heads",
    "first",
    "low",
    "high",
    "back",
    "ahead",
    "threshold",
)


def kernels(dtype: torch.dtype, d_k: int, d_v: int) -> Iterator[dict[str, Any]]:
    """Compile all launches of attention with these heads, causal and with dropout."""
    q, v = (torch.empty(1, 1, width, dtype=dtype) for width in (d_k, d_v))
    seed = torch.zeros((), dtype=torch.int64)
    constants = fused._arguments(q, q, v, [seed] * len(WHERE), Options(True, 0, 0.1, seed))
    layout = Layout.of(LENGTHS)
    tiles, blocks = fused.plan(groups_of(layout, layout).counts, fused._widest(q, v), q.element_size())
    assert blocks is not None
    launches = [(kernel, tile.options) for tile in tiles for kernel in (one_tile.forward, one_tile.backward)]
    launches += [
        (k, blocks.options) for k in (streaming.forward, streaming.backward_queries, streaming.backward_keys)
    ]
    for kernel, options in launches:
        yield {"kernel": kernel.__name__, **options, **_resources(kernel, constants | options, dtype)}
    for options in (one_step.options(places, d_k, d_v, q.element_size()) for places in (4, 64)):
        yield {
            "kernel": "attend",
            **options,
            **_resources(one_step.attend, options | {"num_warps": 4}, dtype),
        }


def likeliest() -> Iterator[str]:
    """Yield the number of 16-byte reads and the stack, for aligned and unaligned rows."""
    for entries in (37_000, 37_001):
        options = next_token.options(5, entries, entries) | {"num_warps": 4}
        found = _resources(next_token.kernel, options, torch.bfloat16)
        yield f"{found['wide']},{found['stack']}"


def _resources(kernel: Any, constants: dict[str, Any], dtype: torch.dtype) -> dict[str, int]:
    names = list(kernel.arg_names)
    types = {n: TYPES.get(n, "i32" if n in INTEGERS else ELEMENTS[dtype]) for n in names if not n.isupper()}
    aligned = [n for n in types if types[n].startswith("*") or n in (*STRIDES, *OF_STEP[:5])]
    source = ASTSource(
        kernel,
        {n: types.get(n, "constexpr") for n in names},
        constexprs={n: constants[n] for n in names if n.isupper()},
        attrs={(names.index(n),): [["tt.divisibility", 16]] for n in aligned},
    )
    options = {"num_warps": constants["num_warps"], "enable_fp_fusion": True}
    compiled = compile(source, target=H100, options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as binary:
        binary.write(compiled.asm["cubin"])
        binary.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", "-sass", binary.name]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {name: int(value) for name, value in re.findall(r"(REG|STACK):(\d+)", told)}
    moved = re.findall(r"\b(?:LDG|LDGSTS|STG)\.[\w.]+", told)
    return {
        "registers": found["REG"],
        "stack": found["STACK"],
        "shared": compiled.metadata.shared,
        "wide": sum(".128" in name for name in moved),
        "of 2 bytes": sum(".U16" in name for name in moved),
        "instructions": len(re.findall(r"/\*[0-9a-f]{4,}\*/ +[@A-Z]", told)),
    }


if __name__ == "__main__":
    for line in kernels(getattr(torch, sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])):
        print(json.dumps(line), flush=True)
