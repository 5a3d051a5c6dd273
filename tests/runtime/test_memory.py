"""Recognition of errors caused by a lack of memory, and peak memory."""

import subprocess
import sys

import pytest
import torch

from nmt_cli.runtime.memory import out_of_memory, resident_memory, return_free_memory

CPU = torch.device("cpu")
HOLDS = """
import sys, torch
from nmt_cli.runtime.memory import peak_memory
cpu = torch.device("cpu")
before = peak_memory(cpu)
torch.zeros(int(sys.argv[1]), dtype=torch.uint8).fill_(1)  # given back at once
print(peak_memory(cpu) - before)
"""


def test_a_failed_allocation_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert out_of_memory(caught.value)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA driver error: out of memory"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory: "
            ),
            True,
        ),
        (RuntimeError("could not create a primitive"), True),
        (RuntimeError("could not create a memory object"), True),
        (RuntimeError("std::bad_alloc"), True),
        (MemoryError(), True),
        (RuntimeError("could not create a primitive descriptor for a matmul primitive"), False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"), False),
        (RuntimeError("out of resource: shared memory, Required: 262144, Hardware limit: 232448."), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("no such setting"), False),
    ],
)
def test_a_lack_of_memory_is_distinguished_from_other_errors(error: Exception, expected: bool) -> None:
    assert out_of_memory(error) == expected


@pytest.mark.slow
def test_peak_memory_is_in_bytes_and_includes_freed_memory() -> None:
    megabytes = 200
    # The peak of a process begins with that of its parent. A shell's is small.
    command = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", HOLDS, str(megabytes << 20)]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert megabytes / 2 < grown / 2**20 < 2 * megabytes  # some memory of earlier objects may be reused


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_freed_memory_returns_to_the_system() -> None:
    return_free_memory()  # of earlier tests
    before = resident_memory()
    pieces = [bytes(range(256)) * 40 for _ in range(20_000)]  # too small for pages of their own
    assert resident_memory() - before > 100e6
    pieces.clear()
    return_free_memory()
    assert resident_memory() - before < 100e6


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_the_memory_of_children_counts() -> None:
    before = resident_memory()
    code = "held = bytes(range(256)) * 400_000; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout and child.stdout.readline()
        assert resident_memory() - before > 100e6
        child.kill()
