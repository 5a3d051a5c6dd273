"""The settings of a run: stored in its folder, and compared when it resumes."""

from collections.abc import Callable
from pathlib import Path
from typing import get_type_hints

from nmt_cli.checkpoints.finding import SETTINGS
from nmt_cli.config import as_toml, read, settings_of_kind
from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import file_written_whole
from nmt_cli.runtime.foreign_text import read_ordinary
from nmt_cli.setting_values import toml_literal
from nmt_cli.training.config import TrainConfig

CONFIG = SETTINGS

FIXED = frozenset(
    f"{section}.{name}"
    for section, cls in get_type_hints(TrainConfig).items()
    for kind in ("shape", "use", "whole run")
    for name in settings_of_kind(cls, kind)
)
"""Settings that cannot change when a run resumes. `model.init` can, because the weights exist by then."""


def keep_settings(run: Path, config: TrainConfig) -> None:
    """Write all settings, with defaults, to `config.toml` in `run`, which can be used to repeat the run."""
    with file_written_whole(run / CONFIG) as file:
        # Names of files may have bytes that are not UTF-8.
        file.write(as_toml(config).encode(errors="surrogateescape"))


def changes(run: Path, config: TrainConfig) -> list[str]:
    """Return a text for each setting that differs from `config.toml` in `run`, or that nmt no longer has.
    Return [] without the file. Raise `UserError` if a `FIXED` setting differs, or if reading fails."""
    notes: list[str] = []
    before = stored(run, notes.append)
    remedy = f"Resume with --config {run / CONFIG}, or choose another --out."
    return [*notes, *(compared(run, before, config, remedy) if before else ())]


def stored(run: Path, note: Callable[[str], None] = lambda text: None) -> TrainConfig | None:
    """Return the settings in `config.toml` of `run`, or None without the file. Pass a text for each setting
    that nmt no longer has to `note`. Raise `UserError` if reading fails."""
    path = run / CONFIG
    if not path.exists():
        return None
    read_ordinary(path)  # refuses a pipe, which would block
    return read(TrainConfig, path, note=note)


def compared(run: Path, before: TrainConfig, config: TrainConfig, remedy: str) -> list[str]:
    """Return "name: old -> new" for each change. Raise `UserError` with `remedy` if a name is in `FIXED`."""
    changed = differences(before, config)
    if fixed := "; ".join(text for name, text in changed.items() if name in FIXED):
        raise UserError(f"{run} was started with other settings ({fixed}), which cannot change. {remedy}")
    return [*changed.values()]


def differences(before: TrainConfig, config: TrainConfig) -> dict[str, str]:
    """Return "name: old -> new" for each setting that differs, by its full name."""
    old, new = literals(before), literals(config)
    return {name: f"{name}: {old[name]} -> {new[name]}" for name in new if old[name] != new[name]}


def literals(config: TrainConfig) -> dict[str, str]:
    """Return the value of each setting as TOML text, by its full name such as "model.width"."""
    return {
        f"{section}.{key}": toml_literal(getattr(getattr(config, section), key))
        for section in TrainConfig.__dataclass_fields__
        for key in type(getattr(config, section)).__dataclass_fields__
    }
