"""The Python library.

    from nmt_cli.api import load

    with load("demo/model") as model:
        print(model.translate(["The house is small.", "Two cats sleep."]))

The library does not change threads of PyTorch, random seeds, signal handlers or environment variables. There
are two exceptions. Deterministic training sets a variable of cuBLAS. Unless set before, `load` sets two
variables that limit the caches of oneDNN and PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nmt_cli.api.commands import Trained, average, preprocess, preset, train
from nmt_cli.api.model import Model, load
from nmt_cli.api.module import TrainableModel, read_model, write_model
from nmt_cli.config import preset_names
from nmt_cli.corpus.config import CorpusConfig
from nmt_cli.data.config import (
    BatchConfig,
    CorporaConfig,
    FilterConfig,
    MixingConfig,
    PreprocessConfig,
)
from nmt_cli.decoding.config import BeamConfig, InputConfig, OutputConfig, SearchConfig, TranslateConfig
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.setting_values import meanings_of
from nmt_cli.text.config import AugmentConfig, SamplingConfig, TextConfig, TokenizerConfig
from nmt_cli.training.config import (
    CheckpointConfig,
    LossConfig,
    OptimizerConfig,
    ScheduleConfig,
    StartConfig,
    TrainConfig,
    TrainingConfig,
    ValidationConfig,
)
from nmt_cli.translation.arguments import Device

if TYPE_CHECKING:  # PyTorch takes seconds to load
    from nmt_cli.data.preprocessing.pipeline import Outcome
    from nmt_cli.decoding.attention_maps import AttentionMaps
    from nmt_cli.decoding.search.hypotheses import Scored
    from nmt_cli.scoring.command import CommandScorer
    from nmt_cli.scoring.measures import Score
    from nmt_cli.scoring.measures import score as score_texts
    from nmt_cli.scoring.neural.comet import Comet
    from nmt_cli.translation.lines import Candidate, Translation
    from nmt_cli.translation.pairs import Alignment, Batch

LATER = {
    "Alignment": "translation.pairs.Alignment",
    "AttentionMaps": "decoding.attention_maps.AttentionMaps",
    "Batch": "translation.pairs.Batch",
    "Candidate": "translation.lines.Candidate",
    "Comet": "scoring.neural.comet.Comet",
    "CommandScorer": "scoring.command.CommandScorer",
    "Outcome": "data.preprocessing.pipeline.Outcome",
    "Score": "scoring.measures.Score",
    "Scored": "decoding.search.hypotheses.Scored",
    "Translation": "translation.lines.Translation",
    "score_texts": "scoring.measures.score",
}
"""Names whose modules load PyTorch, which takes seconds. They are imported when they are first used."""


def __getattr__(name: str) -> object:
    """Import and return a name of `LATER`. Raise `AttributeError` for others."""
    if name not in LATER:
        raise AttributeError(f"nmt_cli.api has no {name}")
    module, _, there = LATER[name].rpartition(".")
    return getattr(import_module(f"nmt_cli.{module}"), there)


__all__ = [
    "Alignment",
    "AttentionMaps",
    "AugmentConfig",
    "Batch",
    "BatchConfig",
    "BeamConfig",
    "Candidate",
    "CheckpointConfig",
    "Comet",
    "CommandScorer",
    "CorporaConfig",
    "CorpusConfig",
    "Device",
    "FilterConfig",
    "InputConfig",
    "LossConfig",
    "MixingConfig",
    "Model",
    "ModelConfig",
    "OptimizerConfig",
    "Outcome",
    "OutputConfig",
    "PreprocessConfig",
    "SamplingConfig",
    "ScheduleConfig",
    "Score",
    "Scored",
    "SearchConfig",
    "StartConfig",
    "TextConfig",
    "TokenizerConfig",
    "TrainConfig",
    "TrainableModel",
    "Trained",
    "TrainingConfig",
    "TranslateConfig",
    "Translation",
    "UserError",
    "ValidationConfig",
    "average",
    "load",
    "preprocess",
    "preset",
    "preset_names",
    "read_model",
    "score_texts",
    "train",
    "write_model",
]

SECTIONS = (
    AugmentConfig,
    BatchConfig,
    BeamConfig,
    CheckpointConfig,
    CorporaConfig,
    CorpusConfig,
    FilterConfig,
    InputConfig,
    LossConfig,
    MixingConfig,
    ModelConfig,
    OptimizerConfig,
    OutputConfig,
    PreprocessConfig,
    SamplingConfig,
    ScheduleConfig,
    SearchConfig,
    StartConfig,
    TextConfig,
    TokenizerConfig,
    TrainConfig,
    TrainingConfig,
    TranslateConfig,
    ValidationConfig,
)


class _Help:
    """The docstring of a section of settings: its own text and the meaning of each setting.

    It is built on each access, because reading the meanings of all sections from the source files at import
    would take as long as all other imports together.
    """

    def __init__(self, text: str | None) -> None:
        self._text = text

    def __get__(self, _: object, section: Any) -> str:
        meanings = [f"{name}: {text}" for name, text in meanings_of(section).items()]
        return "\n\n".join([self._text or "", *meanings])


for _section in SECTIONS:
    _section.__doc__ = _Help(_section.__doc__)  # type: ignore[assignment]
