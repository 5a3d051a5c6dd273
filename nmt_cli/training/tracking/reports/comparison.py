"""Compares several runs on one page: their curves, the settings that differ, and their environments."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from nmt_cli.config import from_file
from nmt_cli.errors import Caution, UserError
from nmt_cli.html.compose import compose
from nmt_cli.runtime.atomic import file_written_whole
from nmt_cli.runtime.foreign_text import read_if_exists
from nmt_cli.setting_values import toml_literal
from nmt_cli.training.settings import CONFIG
from nmt_cli.training.tracking.environment import ENVIRONMENT
from nmt_cli.training.tracking.history import History
from nmt_cli.training.tracking.log import LOG
from nmt_cli.training.tracking.reports.curves_svg import drawing
from nmt_cli.training.tracking.reports.html_report import curves, judged, losses, validations_by_set
from nmt_cli.training.tracking.salvage import whole_lines

SCRIPTS = ("charts.js", "comparison.js")
"""Scripts of the page, in `page/`."""

OTHER_DRAWINGS = (".png", ".pdf", ".jpg", ".jpeg", ".eps")


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as stored in its folder."""

    name: str
    history: History
    settings: Mapping[str, str]
    """TOML literals by full name."""

    environment: Mapping[str, Any]
    """Environment of the newest part of the run."""


def write_comparison(runs: Sequence[Path], out: Path) -> None:
    """Write a page that compares run folders, or a drawing of their curves if `out` ends in .svg. Raise
    `UserError` for a folder without steps, and for formats such as .png.
    """
    if out.suffix.lower() in OTHER_DRAWINGS:
        raise UserError(f"{out} must end in .html or .svg; convert it with rsvg-convert or Inkscape.")
    stored = [_read(run, name) for run, name in zip(runs, _names(runs), strict=True)]
    contents = [_content(run) for run in stored]
    parts = resources.files("nmt_cli.training.tracking") / "page"
    if out.suffix == ".svg":
        text = drawing(contents)
    else:
        text = compose("nmt report", parts, SCRIPTS, {"runs": contents, "differences": differences(stored)})
    with file_written_whole(out) as file:
        file.write(text.encode())


def differences(runs: Sequence[StoredRun]) -> list[list[str]]:
    """Return the name of each setting that differs, followed by its value in each run, "" if not set."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    rows = ([name, *(run.settings.get(name, "") for run in runs)] for name in names)
    return [row for row in rows if len(set(row[1:])) > 1]


def _read(run: Path, name: str) -> StoredRun:
    """Read a run folder. Raise `UserError` if it is not a run folder, or has no step yet."""
    if not (run / CONFIG).is_file():
        raise UserError(
            f"{run} has no {CONFIG}, so it is not a run folder; use a folder that nmt train --out made."
        )
    history = _history(run / LOG)
    if not history.points:
        raise UserError(f"{run} has taken no step yet; train it first, or leave it out.")
    settings = {given.name: toml_literal(given.value) for given in from_file(run / CONFIG)}
    return StoredRun(name, history, settings, _environment(run / ENVIRONMENT))


def _history(log: Path) -> History:
    """Read the intact lines of a log. Warn if there are damaged lines."""
    lines, damaged = whole_lines(read_if_exists(log))
    if damaged:
        warnings.warn(f"{log} has {damaged:,} damaged lines, which are left out", Caution, stacklevel=2)
    history = History()
    history.add(lines)
    return history


def _environment(path: Path) -> Mapping[str, Any]:
    """Return the last intact line of `environment.jsonl`, or an empty mapping."""
    for line in reversed(read_if_exists(path).splitlines()):
        try:
            facts: dict[str, Any] = json.loads(line)
            return facts | {"command": " ".join(facts.get("command", []))}
        except (ValueError, TypeError, AttributeError, RecursionError):  # cut short by a full disk
            continue
    return {}


def _names(runs: Sequence[Path]) -> list[str]:
    """Return the names of the folders, or their paths if two names are equal."""
    names = [run.resolve().name for run in runs]
    return [str(run) if names.count(name) > 1 else name for run, name in zip(runs, names, strict=True)]


def _content(run: StoredRun) -> dict[str, Any]:
    """Return the data of a run for the page."""
    now = run.history.now
    return {
        "name": run.name,
        "step": now.step,
        "tokens": now.target_tokens,
        "hours": now.hours,
        "curves": curves(run.history),
        "losses": losses(run.history),
        "validations": [judged(name, items) for name, items in validations_by_set(run.history).items()],
        "environment": {fact: value for fact, value in run.environment.items() if value is not None},
    }
