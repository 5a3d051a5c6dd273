"""What all ranks have to know alike: compared before their first step, for they would drift apart or hang."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from nmt_cli import __version__
from nmt_cli.checkpoints.run_folder import STATE
from nmt_cli.data.dataset import Dataset
from nmt_cli.errors import UserError
from nmt_cli.runtime.hashes import sha256_of
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.settings import literals
from nmt_cli.training.step.distributed import Group

EACH_ITS_OWN = ("training.max_tokens_per_device", "start.model")
"""Settings that change no result, or a path that leads to the same on each machine."""

SHOWN = 3
"""Differences in an error, at most."""


def refuse_other_orders(group: Group, dataset: Dataset, config: TrainConfig) -> None:
    """`UserError` on all ranks where one has other settings, another dataset, or other versions."""
    written = json.dumps([dataset.manifest[key] for key in ("files", "splits")], sort_keys=True)
    told = {name: value for name, value in literals(config).items() if name not in EACH_ITS_OWN}
    told["dataset"] = f"SHA-256 {hashlib.sha256(written.encode()).hexdigest()[:12]}"
    everybodys = group.gather(told | {"nmt": __version__, "torch": torch.__version__})
    _refuse(everybodys, "start all of them with the same command, on the same dataset.")


def refuse_other_checkpoints(group: Group, newest: Path | None) -> None:
    """`UserError` on all ranks where one finds another checkpoint at the place where the first goes on."""
    path = newest / STATE if newest else None
    found = f"SHA-256 {sha256_of(path)[:12]}" if path and path.is_file() else "missing"
    _refuse(group.gather({str(path): found}), "let all of them see the same run folder.")


def _refuse(everybodys: Sequence[Mapping[str, str]], cure: str) -> None:
    first = everybodys[0]
    for rank, theirs in enumerate(everybodys):
        names = [name for name in {**first, **theirs} if first.get(name) != theirs.get(name)]
        if names:
            shown = "; ".join(f"{name}: {first.get(name)} and {theirs.get(name)}" for name in names[:SHOWN])
            more = f"; and {len(names) - SHOWN} more" * (len(names) > SHOWN)
            raise UserError(f"processes 0 and {rank} differ ({shown}{more}); {cure}")
