"""Fixtures of the kernel tests, which run on a GPU or in Triton's interpreter."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported


@pytest.fixture(scope="session")
def device() -> str:
    """Return the device of the kernel tests."""
    return "cuda" if torch.cuda.is_available() else "cpu"
