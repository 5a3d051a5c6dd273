"""Compares what all ranks train with: settings, dataset, versions and kind of computation.

A rank is one process of the run. Ranks that differ would sum gradients that do not belong together, and no
error would follow.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from nmt_cli import __version__
from nmt_cli.attention.attention import implementation
from nmt_cli.checkpoints.run_folder import STATE
from nmt_cli.data.dataset import Dataset
from nmt_cli.errors import UserError
from nmt_cli.runtime.devices import gpu_name, processor_name
from nmt_cli.runtime.hashes import sha256_of
from nmt_cli.runtime.kernels.families import plain_only
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.settings import literals
from nmt_cli.training.step.distributed import Group
from nmt_cli.training.step.trainer import MixedPrecision

MAY_DIFFER = ("training.max_tokens_per_device", "start.model")
"""Settings that may differ between ranks: one changes no result, the other is a path to the same model."""

SHOWN = 3
"""Maximum number of differences in an error."""


def refuse_other_orders(
    group: Group, dataset: Dataset, config: TrainConfig, precision: MixedPrecision
) -> None:
    """Raise `UserError` on all ranks if they would train differently. All ranks call this.

    Compared are settings, dataset, kind of device, implementation of attention, NMT_KERNELS, and the versions
    of nmt and PyTorch. Settings in `MAY_DIFFER` do not count. `precision` is the precision that this rank
    uses. It is compared instead of the setting, because "auto" means another one on another device.
    """
    manifest = json.dumps([dataset.manifest[key] for key in ("files", "splits")], sort_keys=True)
    facts = {name: value for name, value in literals(config).items() if name not in MAY_DIFFER}
    facts["dataset"] = f"SHA-256 {hashlib.sha256(manifest.encode()).hexdigest()[:12]}"
    # With "auto", the gradients of an A100 in bf16 would be added to those of a T4 in scaled fp16.
    facts["training.precision"] = precision.name
    if config.optimizer.kind == "muon":
        # Each rank computes the same updates, and products on another processor would be rounded differently.
        facts["processor for Muon"] = gpu_name(group.device) or processor_name()
    stacks = dict.fromkeys((config.model, config.model.of_decoder))
    facts["attention"] = " and ".join(
        implementation(group.device, stack.d_k, stack.d_v, precision.dtype) for stack in stacks
    )
    # A GPU's kernels round differently from PyTorch's own operations.
    facts["NMT_KERNELS"] = "plain" if plain_only() else "tried"
    all_facts = group.gather(facts | {"nmt": __version__, "torch": torch.__version__})
    remedy = "Start all of them with the same command, on the same dataset and kind of device."
    _refuse_differences(all_facts, remedy)


def refuse_other_checkpoints(group: Group, checkpoint: Path | None, remedy: str) -> None:
    """Raise `UserError` with `remedy` on all ranks if they see different states of `checkpoint`. All ranks
    call this.

    The file `state.json` is compared. A new run has the `checkpoint` None.
    """
    path = checkpoint / STATE if checkpoint else None
    state = f"SHA-256 {sha256_of(path)[:12]}" if path and path.is_file() else f"{path} is missing"
    _refuse_differences(group.gather({STATE: state}), remedy)


def _refuse_differences(all_facts: Sequence[Mapping[str, str]], remedy: str) -> None:
    """Raise `UserError` if the facts of a rank differ from those of rank 0. The error names up to `SHOWN` of
    them, and ends with `remedy`."""
    first = all_facts[0]
    for rank, facts in enumerate(all_facts):
        names = [name for name in {**first, **facts} if first.get(name) != facts.get(name)]
        if names:
            shown = "; ".join(f"{name}: {first.get(name)} and {facts.get(name)}" for name in names[:SHOWN])
            more = f"; and {len(names) - SHOWN} more" * (len(names) > SHOWN)
            raise UserError(f"processes 0 and {rank} differ ({shown}{more}). {remedy}")
