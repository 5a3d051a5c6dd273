"""The kernels run wherever tests run: on a GPU or in Triton's interpreter."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported


@pytest.fixture(scope="session")
def device() -> str:
    """Where the kernels are tested."""
    return "cuda" if torch.cuda.is_available() else "cpu"
