"""Fixtures of the model's tests, which the tests of its fast forms use as well."""

from tests.model.conftest import batch, build, cuda

__all__ = ["batch", "build", "cuda"]
