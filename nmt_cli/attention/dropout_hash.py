"""Constants of the hash of dropout masks, in a file without PyTorch.

`hashed` in `dropout_masks.py` (PyTorch), `absorbed` in `gpu_attention_parts.py` (Triton) and `_absorbed` in
`cpu_dropout.py` (Numba) compute the same, because each language compiles its own functions only. A process
that only compiles CPU kernels imports this file, and would take seconds to import PyTorch.
"""

GOLDEN, OFFSET = 0x9E3779B1, 0x7F4A7C15
MIX_1, MIX_2 = 0x85EBCA6B, 0xC2B2AE35
