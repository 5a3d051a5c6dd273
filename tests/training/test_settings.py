"""The settings of a run: stored, reused by --config, and compared when it resumes."""

import os
from pathlib import Path

import pytest

from nmt_cli import config as settings
from nmt_cli.decoding.config import TranslateConfig
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.settings import FIXED, changes, keep_settings
from tests.checks import refusal
from tests.training.runs import Tiny


@pytest.mark.parametrize("preset", settings.preset_names())
def test_the_stored_settings_repeat_the_run(tmp_path: Path, preset: str) -> None:
    config = settings.read(TrainConfig, preset=settings.preset_path(preset))
    keep_settings(tmp_path, config)
    assert settings.read(TrainConfig, tmp_path / "config.toml") == config
    text = (tmp_path / "config.toml").read_text(encoding="utf-8")
    assert all(f"{each.name.partition('.')[2]} = " in text for each in settings.describe(TrainConfig))
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


@pytest.mark.parametrize(("config", "section"), [(TrainConfig, "training"), (TranslateConfig, "search")])
@pytest.mark.parametrize("value", ["true", "false"])
def test_old_files_that_name_cuda_graphs_still_load(
    config: type[TrainConfig | TranslateConfig], section: str, value: str, tmp_path: Path
) -> None:
    file, notes = tmp_path / "old.toml", list[str]()
    file.write_text(f"[{section}]\ngraphs = {value}\n")
    assert settings.read(config, file, note=notes.append) == config()
    assert len(notes) == 1 and f"{section}.graphs" in notes[0]


def test_changes_are_listed_old_to_new(tmp_path: Path, tiny: Tiny) -> None:
    assert changes(tmp_path, tiny()) == []
    keep_settings(tmp_path, tiny())
    assert changes(tmp_path, tiny()) == []
    changed = tiny(
        *("training.max_steps=9", "schedule.kind=cosine", "loss.smoothing=0.2", "checkpoints.keep_last=2"),
        *("model.residual_dropout=0.3", "training.precision=bf16", "training.max_tokens_per_device=100"),
    )
    assert changes(tmp_path, changed) == [
        "model.residual_dropout: 0.0 -> 0.3",
        "loss.smoothing: 0.1 -> 0.2",
        'schedule.kind: "noam" -> "cosine"',
        "training.max_steps: 4 -> 9",
        "training.max_tokens_per_device: 0 -> 100",
        'training.precision: "fp32" -> "bf16"',
        "checkpoints.keep_last: 5 -> 2",
    ]


@pytest.mark.parametrize(
    ("assignment", "change"),
    [
        ("model.width=32", "model.width: 16 -> 32"),
        ("model.norm=pre", 'model.norm: "post" -> "pre"'),
        ("model.window=5", "model.window: 0 -> 5"),
        ("batch.tokens=500", "batch.tokens: 400 -> 500"),
        ("batch.longest=50", "batch.longest: 256 -> 50"),
        ("optimizer.kind=adamw", 'optimizer.kind: "adam" -> "adamw"'),
        ("training.seed=2", "training.seed: 1 -> 2"),
        ('start.model="there"', 'start.model: "" -> "there"'),
    ],
)
def test_a_setting_that_cannot_change_is_refused_with_a_remedy(
    tmp_path: Path, tiny: Tiny, assignment: str, change: str
) -> None:
    keep_settings(tmp_path, tiny())
    assert refusal(changes, tmp_path, tiny(assignment, "training.max_steps=9")) == (
        f"{tmp_path} was started with other settings ({change}), which cannot change. "
        f"Resume with --config {tmp_path / 'config.toml'}, or choose another --out."
    )


MOSTLY_FIXED = ("batch.", "sampling.", "augment.", "model.")


def test_of_batches_segmentation_and_model_only_these_settings_can_change() -> None:
    names = [setting.name for setting in settings.describe(TrainConfig)]
    assert [name for name in names if name.startswith(MOSTLY_FIXED) and name not in FIXED] == [
        *("model.init", "model.residual_dropout"),
        *("model.attention_dropout", "model.activation_dropout"),
        "augment.terms_file",
    ]


def test_of_other_sections_only_these_settings_cannot_change() -> None:
    assert sorted(name for name in FIXED if not name.startswith(MOSTLY_FIXED)) == [
        *("mixing.epoch", "mixing.over", "mixing.temperature", "mixing.weights"),
        *("optimizer.kind", "start.model", "start.take"),
        *("training.guided_alignment", "training.seed"),
        *("validation.metric", "validation.sentences"),
    ]


def test_settings_that_cannot_be_read_are_reported_with_their_file(tmp_path: Path, tiny: Tiny) -> None:
    (tmp_path / "config.toml").write_text("[model\nwidth", encoding="utf-8")
    assert "config.toml is not a TOML file" in refusal(changes, tmp_path, tiny())
    (tmp_path / "config.toml").unlink()
    os.mkfifo(tmp_path / "config.toml")  # reading it would block
    assert "config.toml is not an ordinary file" in refusal(changes, tmp_path, tiny())
