"""A `preprocess` run after its inputs are found. All later stages take it as argument."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt_cli.data.config import PreprocessConfig
from nmt_cli.data.dataset import TRAIN
from nmt_cli.data.preprocessing.job import Input, Job
from nmt_cli.data.preprocessing.reuse import Plan
from nmt_cli.runtime.processes import Progress


@dataclass(frozen=True, slots=True)
class Run:
    """The inputs, the plan of the tokenizers and the work folder of a run."""

    job: Job
    inputs: Sequence[Input]
    plan: Plan
    work: Path
    workers: int
    progress: Progress

    @property
    def config(self) -> PreprocessConfig:
        """All settings of the run."""
        return self.job.config

    @property
    def training(self) -> list[Input]:
        """The training corpora among `inputs`, in order."""
        return [item for item in self.inputs if item.role == TRAIN]
