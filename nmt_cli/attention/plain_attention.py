"""The reference of ragged attention, in plain PyTorch. It is slow and runs on any device."""

import torch
from torch import Tensor

from nmt_cli.attention import dropout_masks
from nmt_cli.attention.attention_options import PLAIN, Options
from nmt_cli.ragged import Layout


def attend(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, q: Layout, k: Layout, options: Options = PLAIN
) -> Tensor:
    """Compute attention within each segment. Return [T, H, V] in the dtype of `v_SHV`.

    A query of layout `q` sees the keys of `k` in the segment with the same number, limited by `options`.
    """
    # The first tensor is empty, so that a batch without segments can be concatenated.
    outputs = [q_THK.new_zeros((0, q_THK.shape[1], v_SHV.shape[2]))]
    for segment, (t, s) in enumerate(zip(q.slices(), k.slices(), strict=True)):
        weights_HTS = _weights(q_THK[t], k_SHK[s], options)
        if options.drop:
            weights_HTS = (
                weights_HTS * _keep_mask(weights_HTS, q.mask_keys[segment], options) / (1 - options.drop)
            )
        outputs.append((weights_HTS.to(v_SHV.dtype) @ v_SHV[s].transpose(0, 1)).transpose(0, 1))
    return torch.cat(outputs)


def weights(q_THK: Tensor, k_SHK: Tensor, q: Layout, k: Layout, options: Options = PLAIN) -> list[Tensor]:
    """Return for each segment the attention weights [heads, queries, keys]. Dropout is ignored."""
    pairs = zip(q.slices(), k.slices(), strict=True)
    return [_weights(q_THK[t], k_SHK[s], options) for t, s in pairs]


def _weights(q_THK: Tensor, k_SHK: Tensor, options: Options) -> Tensor:
    """Return [H, T, S]: the softmax weights of one segment, before dropout. Hidden keys have the weight 0."""
    q_HTK, k_HSK = q_THK.transpose(0, 1), k_SHK.transpose(0, 1)
    scores_HTS: Tensor = q_HTK @ k_HSK.mT * q_HTK.shape[-1] ** -0.5
    if (bias_HTS := options.bias(*scores_HTS.shape[1:])) is not None:
        scores_HTS = scores_HTS + bias_HTS
    queries_T1 = torch.arange(scores_HTS.shape[1], device=q_THK.device)[:, None]
    keys_S = torch.arange(scores_HTS.shape[2], device=q_THK.device)
    if options.causal:
        scores_HTS = scores_HTS.masked_fill(keys_S > queries_T1, float("-inf"))
    if options.window:
        outside = (keys_S < queries_T1 - options.back) | (keys_S > queries_T1 + options.ahead)
        scores_HTS = scores_HTS.masked_fill(outside, float("-inf"))
    return scores_HTS.softmax(-1)


def _keep_mask(weights_HTS: Tensor, segment: Tensor, options: Options) -> Tensor:
    """Return the dropout mask of one segment, [H, T, S] like `weights_HTS`, with False for dropped weights.

    `segment` is the number of the segment that is hashed with the seed, from `mask_keys` of its layout.
    """
    seed = options.seed
    assert seed is not None
    heads, queries, keys = (
        torch.arange(size, dtype=torch.int32, device=seed.device) for size in weights_HTS.shape
    )
    return dropout_masks.keep_mask(seed, segment, heads[:, None, None], queries[:, None], keys, options.drop)
