"""Fixtures of the model's tests, for the tests of its fast implementations."""

from tests.model.conftest import batch, build, cuda

__all__ = ["batch", "build", "cuda"]
