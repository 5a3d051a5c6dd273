"""Attention of a few new tokens over keys and values that are kept from step to step."""

from torch import Tensor


def attend_cached(q_BHNK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, bias_BHNM: Tensor) -> Tensor:
    """[B, H, N, V]: N queries of each of B batches over its M keys; `bias`, of a shape that broadcasts, is
    added to their products, so that a very negative one hides a key."""
    scores_BHNM = (q_BHNK * q_BHNK.shape[-1] ** -0.5) @ k_BHMK.mT
    mixed_BHNV: Tensor = scores_BHNM.add_(bias_BHNM).softmax(-1) @ v_BHMV
    return mixed_BHNV
