"""The loss: cross-entropy with label smoothing, without ever holding all logits."""

import torch
from torch import Tensor

from nmt_cli.loss import chunked
from nmt_cli.loss.reference import Losses


def cross_entropy(
    x_TD: Tensor,
    weight_VD: Tensor,
    targets_T: Tensor,
    *,
    smoothing: float,
    grad_scale: Tensor | None = None,
    r_drop: float = 0.0,
) -> Losses:
    """Project T tokens of D features onto V entries. Return the summed cross-entropy with the targets.

    The target distribution is 1 - `smoothing` on the target plus `smoothing` / V on every entry. IGNORED
    targets have no loss and no gradient. Other targets outside of the vocabulary raise `RuntimeError`, or
    give NaN by the kernel of a GPU. Matrix products have the dtype of `x_TD`, also under autocast. Raise
    `ValueError` if shapes do not fit, or if `smoothing` is not in [0, 1).

    The forward pass computes the gradients. The backward pass multiplies them by the incoming gradient. There
    are no second derivatives. `grad_scale` (0-d, on the device, not 0) is the expected incoming gradient: the
    loss scale divided by the number of tokens. The forward pass multiplies by it, so that half precision
    keeps small gradients. The backward pass divides by it, unless the incoming gradient is the same tensor.

    With `r_drop`, the second half of the tokens repeats the first half with other dropout masks. Both losses
    are then means of the two draws. The smoothed loss has `r_drop` / 4 times the sum of the KL divergences of
    each draw from the other in addition.
    """
    if x_TD.ndim != 2 or weight_VD.ndim != 2 or x_TD.shape[1] != weight_VD.shape[1]:
        raise ValueError(f"features {tuple(x_TD.shape)} do not fit weights {tuple(weight_VD.shape)}")
    if targets_T.shape != x_TD.shape[:1]:
        raise ValueError(f"{x_TD.shape[0]} tokens, but targets of shape {tuple(targets_T.shape)}")
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing is {smoothing}, not in [0, 1)")
    required = [torch.is_grad_enabled() and tensor.requires_grad for tensor in (x_TD, weight_VD)]
    smoothed, nll, _, _ = chunked.losses_and_gradients(
        x_TD, weight_VD, targets_T, smoothing, r_drop, grad_scale, *required
    )
    return Losses(smoothed, nll)
