"""Chooses who computes the loss; the only module of the room that asks which device it is on."""

from torch import Tensor

from nmt_cli.loss import chunked
from nmt_cli.loss.reference import Losses


def cross_entropy(
    x_TD: Tensor, weight_VD: Tensor, targets_T: Tensor, *, smoothing: float, grad_scale: Tensor | None = None
) -> Losses:
    """Project T tokens of D features onto V entries, and compare with the targets; [T, V] is never held.

    The wanted distribution is 1 - `smoothing` on the target plus `smoothing` / V on every entry; targets that
    are IGNORED carry no loss and no gradient. Matrix products are done in the dtype of `x_TD`, whatever
    autocast says. There are first derivatives only.

    Gradients are computed in the forward pass; the backward pass only multiplies them by the gradient of the
    loss that it is given. `grad_scale` (0-d, on the device, not 0) is what that will be: loss scale divided
    by the number of tokens. The gradient of the logits is multiplied by it before it is rounded to half
    precision, where without it small values would become 0, and the backward pass divides by it again, unless
    it is given this very tensor.
    """
    if x_TD.ndim != 2 or weight_VD.ndim != 2 or x_TD.shape[1] != weight_VD.shape[1]:
        raise ValueError(f"features {tuple(x_TD.shape)} do not fit weights {tuple(weight_VD.shape)}")
    if targets_T.shape != x_TD.shape[:1]:
        raise ValueError(f"{x_TD.shape[0]} tokens, but targets of shape {tuple(targets_T.shape)}")
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing is {smoothing}, not in [0, 1)")
    if x_TD.is_cuda:
        from nmt_cli.loss import fused  # noqa: F401  # registers itself; Triton is absent without a GPU

    return chunked.cross_entropy(x_TD, weight_VD, targets_T, smoothing=smoothing, grad_scale=grad_scale)
