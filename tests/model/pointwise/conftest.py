"""The fixture of fused kernels, which imports Triton with or without its interpreter."""

from tests.attention.conftest import device

__all__ = ["device"]
