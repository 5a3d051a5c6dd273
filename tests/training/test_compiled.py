"""Training a compiled model: few shapes occur, and after the first epoch nothing is compiled."""

from functools import partial
from pathlib import Path

import pytest
import torch

from nmt_cli.training.tracking.events import Event, Progress
from tests.training.runs import Go


@pytest.mark.slow
def test_after_the_first_epoch_nothing_is_compiled_any_more(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo.utils import counters  # imported here, because it loads Triton

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager", fullgraph=True))
    torch._dynamo.reset()
    counters.clear()
    seen: dict[int, int] = {}

    def count(event: Event) -> None:
        if isinstance(event, Progress):
            seen[event.step] = counters["stats"]["unique_graphs"]

    # In bf16, linear layers compute with copies that take their parameters' places.
    limits = (
        "training.precision=bf16",
        "training.max_epochs=2",
        "training.max_steps=900",
        "training.log_every=1",
    )
    complete, _ = go("training.compile=on", *limits, report=count)
    assert complete
    epoch = len(seen) // 2
    graphs = list(seen.values())
    assert 1 <= graphs[0] <= graphs[epoch] <= 4
    assert set(graphs[epoch:]) == {graphs[epoch]}
