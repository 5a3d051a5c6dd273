"""Compares several runs on one page: their curves, the settings that differ, and their environments."""

import json
import warnings
from collections.abc import Mapping, Sequence
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


def write_comparison(runs: Sequence[Path], out: Path) -> None:
    """Write an HTML page that compares `runs`, or an SVG if `out` ends in .svg. Raise `UserError` if a folder
    has no steps of a run, or `out` ends in .png, .pdf, .jpg, .jpeg or .eps."""
    if out.suffix.lower() in OTHER_DRAWINGS:
        raise UserError(f"{out} must end in .html or .svg. Convert it with rsvg-convert or Inkscape.")
    stored = [_read(run, name) for run, name in zip(runs, _names(runs), strict=True)]
    contents = [content for content, _ in stored]
    parts = resources.files("nmt_cli.training.tracking") / "page"
    if out.suffix == ".svg":
        text = drawing(contents)
    else:
        rows = differences([settings for _, settings in stored])
        text = compose("nmt report", parts, SCRIPTS, {"runs": contents, "differences": rows})
    with file_written_whole(out) as file:
        file.write(text.encode())


def differences(settings: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """Return [name, value in each run] for each setting that differs. Use "" for a missing value."""
    names = dict.fromkeys(name for values in settings for name in values)
    rows = ([name, *(values.get(name, "") for values in settings)] for name in names)
    return [row for row in rows if len(set(row[1:])) > 1]


def _read(run: Path, name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a run's page data, and settings as TOML by name. Raise `UserError` without settings or steps."""
    if not (run / CONFIG).is_file():
        raise UserError(
            f"{run} has no {CONFIG}, so it is not a run folder. Use a folder that nmt train --out made."
        )
    history = _history(run / LOG)
    if not history.points:
        raise UserError(f"{run} has taken no step yet. Train it first, or leave it out.")
    settings = {setting.name: toml_literal(setting.value) for setting in from_file(run / CONFIG)}
    content = {
        "name": name,
        "step": history.now.step,
        "tokens": history.now.target_tokens,
        "hours": history.now.hours,
        "curves": curves(history),
        "losses": losses(history),
        "validations": [judged(name, items) for name, items in validations_by_set(history).items()],
        "environment": _environment(run / ENVIRONMENT),
    }
    return content, settings


def _history(log: Path) -> History:
    """Return the history of the intact lines, empty without a log. Warn about damaged lines."""
    lines, damaged = whole_lines(read_if_exists(log))
    if damaged:
        warnings.warn(f"{log} has {damaged:,} damaged lines, which are left out", Caution, stacklevel=2)
    history = History()
    history.add(lines)
    return history


def _environment(path: Path) -> dict[str, Any]:
    """Return the facts of the last intact line, or {}. Omit null, and join the command to one text."""
    for line in reversed(read_if_exists(path).splitlines()):
        try:
            facts = json.loads(line)
            facts = facts | {"command": " ".join(facts.get("command", []))}
            return {fact: value for fact, value in facts.items() if value is not None}
        except (ValueError, TypeError, AttributeError, RecursionError):  # cut short by a full disk
            continue
    return {}


def _names(runs: Sequence[Path]) -> list[str]:
    """Return the folder name of each run. For runs with equal folder names, return the paths instead."""
    names = [run.resolve().name for run in runs]
    return [str(run) if names.count(name) > 1 else name for run, name in zip(runs, names, strict=True)]
