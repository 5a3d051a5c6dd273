"""A run's settings over its whole life: kept in its folder, and compared when it goes on."""

from pathlib import Path
from typing import get_type_hints

from nmt_cli.config import as_toml, read, settings_of_kind
from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import file_written_whole
from nmt_cli.runtime.foreign_text import read_ordinary
from nmt_cli.setting_values import toml_literal
from nmt_cli.training.config import TrainConfig

CONFIG = "config.toml"

FIXED = frozenset(
    f"{section}.{name}"
    for section, cls in get_type_hints(TrainConfig).items()
    for kind in ("shape", "use", "whole run")
    for name in settings_of_kind(cls, kind)
)
"""What can't change while a run goes on; all else can, `model.init` too: the weights are there by then, and a
preset may have changed it since."""


def keep_settings(run: Path, config: TrainConfig) -> None:
    """Write the effective settings; `nmt train --config` on that file repeats the run."""
    with file_written_whole(run / CONFIG) as file:
        file.write(as_toml(config).encode(errors="surrogateescape"))


def changes(run: Path, config: TrainConfig) -> list[str]:
    """Each setting that differs from the run's so far, old -> new, and those that are gone; `UserError` where
    one can't change."""
    path = run / CONFIG
    if not path.exists():
        return []
    gone: list[str] = []
    read_ordinary(path)  # a pipe would be waited for
    before = read(TrainConfig, path, note=gone.append)
    return [*gone, *compared(run, before, config, f"go on with --config {path}, or choose another --out.")]


def compared(run: Path, before: TrainConfig, config: TrainConfig, cure: str) -> list[str]:
    """Each setting that differs, old -> new; `UserError`, with a `cure`, where one can't change."""
    old, new = literals(before), literals(config)
    changed = {name: f"{name}: {old[name]} -> {new[name]}" for name in new if old[name] != new[name]}
    if fixed := [text for name, text in changed.items() if name in FIXED]:
        told = "; ".join(fixed)
        raise UserError(
            f"{run} was begun with other settings ({told}), which can't change on the way; {cure}"
        )
    return [*changed.values()]


def literals(config: TrainConfig) -> dict[str, str]:
    """The value of every setting, by its full name, as TOML."""
    return {
        f"{section}.{key}": toml_literal(getattr(getattr(config, section), key))
        for section in TrainConfig.__dataclass_fields__
        for key in type(getattr(config, section)).__dataclass_fields__
    }
