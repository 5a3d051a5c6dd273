"""A run's settings over its whole life: kept in its folder, and compared when it goes on."""

from pathlib import Path

from nmt_cli.config import as_toml, read, settings_of_kind, toml_literal
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.training.config import TrainConfig

CONFIG = "config.toml"

FIXED = (
    *("model.", "batch.", "optimizer.kind", "training.seed", "validation.metric", "validation.sentences"),
    *("start.model", "start.allow", "sampling.", "validation.bleu_tokenizer"),
)
"""What can't change while a run goes on; all else can."""

# model.init is among them: the weights are there by then, and a preset may have changed it since.
FREE = [f"model.{name}" for name in settings_of_kind(ModelConfig, "training only")]


def keep_settings(run: Path, config: TrainConfig) -> None:
    """Write the effective settings; `nmt train --config` on that file repeats the run."""
    unfinished = run / f".{CONFIG}.unfinished"
    unfinished.write_text(as_toml(config), encoding="utf-8")
    unfinished.replace(run / CONFIG)


def changes(run: Path, config: TrainConfig) -> list[str]:
    """Each setting that differs from the run's so far, old -> new, and those that are gone; `UserError` where
    one can't change."""
    path = run / CONFIG
    if not path.exists():
        return []
    gone: list[str] = []
    before = read(TrainConfig, path, note=gone.append)
    changed = {
        f"{section}.{key}": f"{section}.{key}: {toml_literal(old)} -> {toml_literal(new)}"
        for section in TrainConfig.__dataclass_fields__
        for key in type(getattr(before, section)).__dataclass_fields__
        if (old := getattr(getattr(before, section), key)) != (new := getattr(getattr(config, section), key))
    }
    if fixed := [text for name, text in changed.items() if name.startswith(FIXED) and name not in FREE]:
        raise UserError(
            f"{run} was begun with other settings ({'; '.join(fixed)}), which can't change on the way; "
            f"go on with --config {path}, or choose another --out."
        )
    return [*gone, *changed.values()]
