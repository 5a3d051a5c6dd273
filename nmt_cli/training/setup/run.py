"""A training run before its first step: its dataset, settings and processes, and what follows from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from nmt_cli.checkpoints.model_folder import GUIDED, TERMS, Identity, shareable
from nmt_cli.corpus.raw_files import sha256
from nmt_cli.data.batching.planner import BatchPlan, plan_of
from nmt_cli.data.dataset import TOKENIZERS, TRAIN, Dataset, Split
from nmt_cli.scoring.neural.comet import Comet
from nmt_cli.text.tokenizers import Tokenizers, load_tokenizers
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.setup.precision import precision_of
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.trainer import MixedPrecision
from nmt_cli.training.tracking.events import Event, Report
from nmt_cli.training.validation.judge import load_comet


@dataclass(frozen=True)
class TrainingRun:
    """A training run, as one of its processes sees it.

    The fields are what the caller chooses. Everything else is computed once, when it is first needed: some
    parts take minutes, and some raise errors, whose order is that of the checks.
    """

    folder: Path
    """The run folder, which may not exist yet."""

    dataset: Dataset
    config: TrainConfig
    process: Process
    device: torch.device

    readers: list[Report] = field(default_factory=list)
    """Functions that are called with each event of the run."""

    def report(self, event: Event) -> None:
        """Pass an event to all readers."""
        for reader in self.readers:
            reader(event)

    @property
    def train_set(self) -> Split:
        """The training pairs."""
        return self.dataset.splits[TRAIN]

    @cached_property
    def precision(self) -> MixedPrecision:
        """The precision of matrix products. Raise `UserError` if the device does not have it."""
        return precision_of(self.folder, self.config, self.device)

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """The tokenisers of the dataset."""
        return load_tokenizers(self.dataset.folder / TOKENIZERS)

    @cached_property
    def plan(self) -> BatchPlan:
        """The plan of all batches. Raise `UserError` if [mixing] does not fit the dataset."""
        return plan_of(self.dataset, self.config.batch, self.config.mixing, self.config.training.seed)

    @cached_property
    def comet(self) -> Comet | None:
        """The model in validation.metric_model, if any. Only the first rank has it, since it needs gigabytes.
        Raise `UserError` if the folder has no model that can be read."""
        return load_comet(self.config.validation) if self.process.first else None

    @cached_property
    def identity(self) -> Identity:
        """The identity of the model to train: settings, tokenisers, and a record of the training data."""
        trained_on = _trained_on(self.dataset, self.config)
        # Checkpoints are shared, so the record must not name folders of the user.
        return Identity(self.config.model, self.tokenizers, shareable(trained_on))

    @cached_property
    def group(self) -> Group:
        """The processes of the run. The first use waits for all of them, and the user has to close the group.
        Raise `UserError` if they cannot meet."""
        return Group(self.process, self.device, self.config.training.rank_timeout)


def _trained_on(dataset: Dataset, config: TrainConfig) -> Mapping[str, Any]:
    """Return the record of the training data that a model folder stores. A checkpoint resumes only if files,
    corpora and annotated terms in it are the same."""
    manifest, train = dataset.manifest, dataset.splits[TRAIN]
    trained_on = {
        "inputs": manifest.get("inputs"),
        "files": {
            name: file["sha256"] for name, file in manifest["files"].items() if name.startswith(f"{TRAIN}.")
        },
        "longest": config.batch.max_length,
        # target tokens per source token
        "length_ratio": round(int(train.target.offsets[-1]) / max(1, int(train.source.offsets[-1])), 3),
    }
    if corpora := manifest["splits"][TRAIN].get("corpora"):
        trained_on["corpora"] = corpora
    if weight := config.training.guided_alignment:
        trained_on[GUIDED] = weight
    if config.augment.terms:
        trained_on[TERMS] = sha256(Path(config.augment.terms_file))
    return trained_on
