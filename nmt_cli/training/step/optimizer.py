"""Adam over one vector of parameters, or a share of it, and its state by name, as checkpoints keep it."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from nmt_cli.runtime.kernels.torch_private import step_unless
from nmt_cli.training.config import OptimizerConfig
from nmt_cli.training.step.flat import UNIT, Parameters, Span

MEANS = ("exp_avg", "exp_avg_sq")
STEP = "step"


class Optimizer:
    """Adam or AdamW of a model's parameters, which it moves into one vector.

    Of the state, `share` of so many `shares` is kept and updated here.
    """

    def __init__(self, model: nn.Module, config: OptimizerConfig, share: int = 0, shares: int = 1) -> None:
        self._config, self._model = config, model
        self.split = shares > 1
        self.parameters = Parameters(model, shares)
        size = len(self.parameters.vector) // shares
        self.share = slice(share * size, (share + 1) * size)
        """Which part of the vector is updated here."""

        self._means = {what: torch.zeros_like(self.parameters.vector[self.share]) for what in MEANS}
        self._resting: dict[str, Tensor] = {}
        self._steps: dict[str, Tensor] = {}
        self._places: list[slice] = []
        self._build({})

    def step(self, gradients: Tensor, rate: float, bad: Tensor, scale: Tensor | None) -> None:
        """Update this share of the parameters by its `gradients`, which `scale` was multiplied into, unless
        `bad` is 1."""
        for piece, place in zip(self._pieces, self._places, strict=True):
            piece.grad = gradients[place]
        for group in self._adam.param_groups:
            group["lr"] = rate
        step_unless(self._adam, bad, scale)

    def tensors(self, gathered: Callable[[Tensor], Tensor] = lambda share: share) -> dict[str, Tensor]:
        """The state of each parameter, by the parameter's name and what it is.

        `gathered` makes a whole vector of all ranks' shares; without it, all of it is here.
        """
        found: dict[str, Tensor] = dict(self._resting)
        for what, mean in self._means.items():
            views = self.parameters.views(gathered(mean))
            found |= {f"{name}.{what}": view for name, view in zip(self.parameters.spans, views, strict=True)}
        # Each its own, as files want it.
        return found | {f"{name}.{STEP}": step.clone() for name, step in self._steps.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` gave, of any number of ranks; parameters that it lacks begin anew."""
        taken: dict[str, float] = {}
        for name, span in self.parameters.spans.items():
            if f"{name}.{STEP}" not in tensors:
                continue
            taken[name] = float(tensors[f"{name}.{STEP}"])
            start, end = max(span.start, self.share.start), min(span.end, self.share.stop)
            for what, mean in self._means.items() if start < end else ():
                whole = tensors[f"{name}.{what}"].flatten()
                here = mean[start - self.share.start : end - self.share.start]
                here.copy_(whole[start - span.start : end - span.start])
        # Of parameters that are frozen now: they may go on in a later run.
        kept = [name for name, each in self._model.named_parameters() if not each.requires_grad]
        states = [f"{name}.{what}" for name in kept for what in (*MEANS, STEP)]
        self._resting = {name: tensors[name].clone() for name in states if name in tensors}
        self._build(taken)

    def _build(self, taken: Mapping[str, float]) -> None:
        """Make Adam anew, for parameters that have taken so many steps."""
        self._steps, self._places = {}, []
        first, pieces, states = self.share.start, [], []
        for names, span in self._runs(taken):
            # Empty where others have all of a run: its steps are counted everywhere.
            start, end = (min(max(x, first), self.share.stop) for x in (span.start, span.end))
            place = slice(start - first, end - first)
            step = torch.full((), taken.get(names[0], 0.0), device=self.parameters.vector.device)
            pieces.append(self.parameters.vector[start:end])
            states.append({STEP: step, **{what: mean[place] for what, mean in self._means.items()}})
            self._places.append(place)
            self._steps |= dict.fromkeys(names, step)
        self._adam = _adam(pieces, self._config)
        self._adam.state.update(zip(pieces, states, strict=True))
        self._pieces = pieces

    def _runs(self, taken: Mapping[str, float]) -> list[tuple[list[str], Span]]:
        """Neighbours that have taken equally many steps, and where they lie; mostly all of them are one
        run."""
        runs: list[tuple[list[str], Span]] = []
        for name, span in self.parameters.spans.items():
            names, before = runs[-1] if runs else ([], span)
            # Adam's kernel for processors rounds otherwise behind the last whole unit: a run ends there.
            if names and taken.get(names[0]) == taken.get(name) and before.size % UNIT == 0:
                runs[-1] = ([*names, name], Span(before.start, span.end - before.start))
            else:
                runs.append(([name], span))
        return runs


def _adam(pieces: list[Tensor], config: OptimizerConfig) -> torch.optim.Adam:
    """Adam or AdamW, fused: the device itself can leave out a step, see `step_unless`."""
    kind = torch.optim.Adam if config.kind == "adam" else torch.optim.AdamW
    return kind(
        pieces,
        lr=0.0,  # each step sets its own
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )
