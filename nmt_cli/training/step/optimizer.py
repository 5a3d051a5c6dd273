"""Adam over one vector of parameters or a share of it. Checkpoints store its state by parameter name."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from nmt_cli.runtime.kernels.torch_private import step_unless
from nmt_cli.training.config import OptimizerConfig
from nmt_cli.training.step.flat import UNIT, Parameters

MEANS = ("exp_avg", "exp_avg_sq")
STEP = "step"


class Optimizer:
    """Adam or AdamW over a model's parameters, moved into one vector of `shares` equal shares. This rank
    updates only share number `share` (from 0), and stores only the state of this share."""

    def __init__(self, model: nn.Module, config: OptimizerConfig, share: int = 0, shares: int = 1) -> None:
        """Move the parameters of `model` into one vector, and start with moments of 0."""
        self._config, self._model = config, model
        self.split = shares > 1
        self.parameters = Parameters(model, shares)
        size = len(self.parameters.vector) // shares
        self.share = slice(share * size, (share + 1) * size)
        """The slice of the vector that this rank updates."""

        self._means = {key: torch.zeros_like(self.parameters.vector[self.share]) for key in MEANS}
        self._frozen: dict[str, Tensor] = {}
        """State of frozen parameters, which a later run may train again."""
        self._steps: dict[str, Tensor] = {}
        self._slices: list[slice] = []
        self._build({})

    def step(self, gradients: Tensor, rate: float, bad: Tensor, scale: Tensor | None) -> None:
        """Update this rank's share with learning rate `rate`. If `bad` is 1, change nothing. `gradients` is
        the slice of this share, times the loss scale `scale` if there is one. Do not wait for the device."""
        for piece, piece_slice in zip(self._pieces, self._slices, strict=True):
            piece.grad = gradients[piece_slice]
        for group in self._adam.param_groups:
            group["lr"] = rate
        step_unless(self._adam, bad, scale)

    def tensors(self, gathered: Callable[[Tensor], Tensor] = lambda share: share) -> dict[str, Tensor]:
        """Return the state by key: "NAME.exp_avg", "NAME.exp_avg_sq" and "NAME.step". For frozen parameters,
        return the state from the checkpoint. `gathered` joins the shares of all ranks, if several."""
        state: dict[str, Tensor] = dict(self._frozen)
        for key, mean in self._means.items():
            views = self.parameters.views(gathered(mean) if self.split else mean)
            state |= {f"{name}.{key}": view for name, view in zip(self.parameters.spans, views, strict=True)}
        # A safetensors file does not store tensors that share memory.
        return state | {f"{name}.{STEP}": step.clone() for name, step in self._steps.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `tensors` returned, with any number of shares. Parameters without state
        start from zero. Keep the state of frozen parameters for the next checkpoint."""
        steps: dict[str, float] = {}
        for name, span in self.parameters.spans.items():
            if f"{name}.{STEP}" not in tensors:
                continue
            steps[name] = float(tensors[f"{name}.{STEP}"])
            start, end = max(span.start, self.share.start), min(span.stop, self.share.stop)
            for key, mean in self._means.items() if start < end else ():
                stored = tensors[f"{name}.{key}"].flatten()
                part = mean[start - self.share.start : end - self.share.start]
                part.copy_(stored[start - span.start : end - span.start])
        frozen = [name for name, parameter in self._model.named_parameters() if not parameter.requires_grad]
        keys = [f"{name}.{key}" for name in frozen for key in (*MEANS, STEP)]
        self._frozen = {key: tensors[key].clone() for key in keys if key in tensors}
        self._build(steps)

    def _build(self, steps: Mapping[str, float]) -> None:
        """Create the Adam optimiser over this rank's share, with the moments in `_means`. `steps` has by name
        the number of steps that each parameter has taken. A parameter without an entry has taken none."""
        self._steps, self._slices = {}, []
        first, pieces, states = self.share.start, [], []
        for names, span in self._runs(steps):
            # The slice is empty if other ranks have all of a run. Each rank counts the steps of all runs.
            start, end = (min(max(x, first), self.share.stop) for x in (span.start, span.stop))
            piece_slice = slice(start - first, end - first)
            step = torch.full((), steps.get(names[0], 0.0), device=self.parameters.vector.device)
            pieces.append(self.parameters.vector[start:end])
            states.append({STEP: step, **{key: mean[piece_slice] for key, mean in self._means.items()}})
            self._slices.append(piece_slice)
            self._steps |= dict.fromkeys(names, step)
        self._adam = _adam(pieces, self._config)
        self._adam.state.update(zip(pieces, states, strict=True))
        self._pieces = pieces

    def _runs(self, steps: Mapping[str, float]) -> list[tuple[list[str], slice]]:
        """Return names and slice of each run of adjacent parameters whose values in `steps` are equal."""
        runs: list[tuple[list[str], slice]] = []
        for name, span in self.parameters.spans.items():
            names, before = runs[-1] if runs else ([], span)
            # Adam's CPU kernel rounds differently after the last full unit, so a run ends there.
            if names and steps.get(names[0]) == steps.get(name) and (before.stop - before.start) % UNIT == 0:
                runs[-1] = ([*names, name], slice(before.start, span.stop))
            else:
                runs.append(([name], span))
        return runs


def _adam(pieces: list[Tensor], config: OptimizerConfig) -> torch.optim.Adam:
    """Return a fused Adam, or AdamW if `config.kind` is "adamw", over `pieces`, at learning rate 0."""
    kind = torch.optim.Adam if config.kind == "adam" else torch.optim.AdamW
    return kind(
        pieces,
        lr=0.0,  # each step sets its own
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )
