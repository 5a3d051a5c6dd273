"""The Python library.

    from nmt_cli.api import load

    with load("runs/en-de") as model:
        print(model.translate(["A dog runs.", "Two cats sleep."]))

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
    from nmt_cli.data.preprocessing.preprocess import Outcome
    from nmt_cli.decoding.attention_maps import AttentionMaps
    from nmt_cli.decoding.search.hypotheses import Scored
    from nmt_cli.scoring.command import CommandScorer
    from nmt_cli.scoring.metrics import Score
    from nmt_cli.scoring.metrics import score as score_texts
    from nmt_cli.scoring.neural.comet import Comet
    from nmt_cli.translation.pairs import Alignment, Batch
    from nmt_cli.translation.translator import Candidate, Translation
else:
    LATER = {
        "Alignment": "translation.pairs",
        "AttentionMaps": "decoding.attention_maps",
        "Batch": "translation.pairs",
        "Candidate": "translation.translator",
        "Comet": "scoring.neural.comet",
        "CommandScorer": "scoring.command",
        "Outcome": "data.preprocessing.preprocess",
        "Score": "scoring.metrics",
        "Scored": "decoding.search.hypotheses",
        "Translation": "translation.translator",
        "score_texts": "scoring.metrics",
    }

    def __getattr__(name: str) -> object:
        """Import the class or function `name`, which loads PyTorch, and return the import. Raise
        `AttributeError` for other names."""
        if name not in LATER:
            raise AttributeError(f"nmt_cli.api has no {name}")
        return getattr(import_module(f"nmt_cli.{LATER[name]}"), name.removesuffix("_texts"))


__all__ = ["Comet", "CommandScorer", "Device", "Model", "TrainableModel", "Trained", "UserError"]
__all__ += ["average", "load", "preprocess", "preset", "preset_names", "read_model", "score_texts"]
__all__ += ["train", "write_model"]
__all__ += ["Alignment", "AttentionMaps", "Batch", "Candidate", "Outcome", "Score", "Scored", "Translation"]
__all__ += ["AugmentConfig", "BatchConfig", "BeamConfig", "CheckpointConfig", "CorporaConfig", "CorpusConfig"]
__all__ += ["FilterConfig", "InputConfig", "LossConfig", "MixingConfig", "ModelConfig", "OptimizerConfig"]
__all__ += ["OutputConfig", "PreprocessConfig", "SamplingConfig", "ScheduleConfig", "SearchConfig"]
__all__ += ["StartConfig", "TextConfig", "TokenizerConfig", "TrainConfig", "TrainingConfig"]
__all__ += ["TranslateConfig", "ValidationConfig"]


class _Help:
    """The docstring of a section: its own text and the meanings of all settings, built on each access."""

    def __init__(self, text: str | None) -> None:
        self._text = text

    def __get__(self, _: object, section: Any) -> str:
        """Return the docstring of the class `section`: its own text, and a paragraph for each setting."""
        return "\n\n".join(
            [self._text or "", *(f"{name}: {text}" for name, text in meanings_of(section).items())]
        )


for _section in [globals()[name] for name in __all__ if name.endswith("Config")]:
    _section.__doc__ = _Help(_section.__doc__)
