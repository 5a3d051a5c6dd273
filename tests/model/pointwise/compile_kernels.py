"""Compile the kernels for an H100, on any machine: python -m tests.model.pointwise.compile_kernels.

Print one line of JSON for each kernel: its registers, and its shared memory and stack in bytes. The stack
holds spilled registers.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
import triton.language as tl
from triton import compile, knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nmt_cli.model.pointwise import fused

H100 = GPUTarget("cuda", 90, 32)
TYPES = dict.fromkeys(("sums", "means", "scales", "weight", "bias", "d_weights", "d_biases"), "*fp32")
TYPES |= dict.fromkeys(("epsilon", "amplified"), "fp32") | {"seed": "*i64"}
TYPES |= dict.fromkeys(("tokens", "width", "threshold", "d_out_token"), "i32")


def kernels() -> Iterator[dict[str, Any]]:
    """Compile the kernels of bf16 training for layers of the widths of the base and the big model."""
    relu = {"PART": fused.PART, "ROWS": fused.ROWS, "COLUMNS": fused.COLUMNS, "WIDE": tl.float32}
    launches: list[tuple[Any, dict[str, Any]]] = [(fused._relu_backward_kernel, relu)]
    for width in (512, 1024):
        constants = fused._constants(torch.empty(1, width), 0.1) | {"PART": fused.NORM_PART}
        normed_sum_kernels = (fused._normed_sum_kernel, fused._normed_sum_backward_kernel)
        launches += [(kernel, constants) for kernel in normed_sum_kernels]
    for kernel, constants in launches:
        yield {"kernel": kernel.__name__, "width": constants.get("D"), **_resources(kernel, constants)}


def _resources(kernel: Any, constants: dict[str, Any]) -> dict[str, int]:
    names = list(kernel.arg_names)
    types = {name: TYPES.get(name, "*bf16") for name in names if not name.isupper()}
    aligned = [n for n in types if types[n].startswith("*") or n in ("width", "d_out_token")]
    source = ASTSource(
        kernel,
        {name: types.get(name, "constexpr") for name in names},
        constexprs={name: constants[name] for name in names if name.isupper()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    compiled = compile(source, target=H100, options={"num_warps": fused.WARPS})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as binary:
        binary.write(compiled.asm["cubin"])
        binary.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", binary.name]
        usage = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    resources = {name: int(value) for name, value in re.findall(r"(REG|STACK):(\d+)", usage)}
    wide = "ld.global.v4" in (ptx := compiled.asm["ptx"]) or "ld.global.L1::no_allocate.v4" in ptx
    return {
        "registers": resources["REG"],
        "stack": resources["STACK"],
        "shared": compiled.metadata.shared,
        "wide": wide,
    }


if __name__ == "__main__":
    for line in kernels():
        print(json.dumps(line), flush=True)
