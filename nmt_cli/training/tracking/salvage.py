"""Recovers the intact lines of a damaged log, and counts the lost ones."""

import json
from collections.abc import Mapping
from typing import Any

from nmt_cli.training.position import Position
from nmt_cli.training.tracking.history import MEASURED

OF_STEPS = ("epoch", "source_tokens", "target_tokens", "tokens_per_second", "skipped")
LARGEST = 1e300
OF_VALIDATIONS = ("nll", "perplexity", "word_perplexity")


def salvaged(content: bytes, position: Position) -> tuple[bytes, list[str]]:
    """Return the intact lines of a log up to `position`, each step and validation once. Return also a text
    for each kind of loss: damaged lines, missing steps and missing validations."""
    intact: dict[tuple[int, str], bytes] = {}
    damaged = damaged_inside = 0
    for line in content.split(b"\n")[:-1]:  # the last one was cut short, or is empty
        if not (entry := _read(line)):
            damaged += 1
        elif entry["step"] < position.step or (
            entry["step"] == position.step and ("valid" not in entry or str(position.step) in position.scores)
        ):
            intact.setdefault((entry["step"], entry.get("valid", "")), line)
            damaged_inside = damaged  # a kill may leave damaged bytes after the last line
    validated = {step for step, name in intact if name}
    counts = {
        "damaged lines": damaged_inside,
        "missing steps": position.step - sum(not name for _, name in intact),
        "missing validations": sum(int(step) not in validated for step in position.scores),
    }
    losses = [f"{count:,} {kind}" for kind, count in counts.items() if count]
    return b"".join(line + b"\n" for line in intact.values()), losses


def whole_lines(content: bytes) -> tuple[list[dict[str, Any]], int]:
    """Return intact log lines as dicts, and the number of damaged ones. Skip a last line without newline."""
    entries = [_read(line) for line in content.split(b"\n")[:-1]]
    return [entry for entry in entries if entry], entries.count(None)


def _read(line: bytes) -> dict[str, Any] | None:
    """Return the content of a line, or None if it is damaged."""
    try:
        content = json.loads(line)
        return content if _is_intact(content) else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _is_intact(line: Mapping[str, Any]) -> bool:
    """Return whether a line of a step or validation has all entries that readers use, with valid values. For
    other lines, return False or raise `LookupError`, `TypeError` or `AttributeError`."""
    if not (isinstance(line["step"], int) and 0 < line["step"] < 2**53):
        return False
    if "valid" not in line:
        counts, measured = [line[name] for name in OF_STEPS], [line.get(name) for name in MEASURED]
        return None not in counts and all(map(_number, counts + measured))
    numbers = [*(line[name] for name in OF_VALIDATIONS), *(line[metric] for metric in line["signatures"])]
    texts = [line["valid"], *line["signatures"].values(), *line.get("samples", {}).values()]
    texts.append(line.get("scored_on", ""))
    return all(map(_number, numbers)) and all(isinstance(text, str) for text in texts)


def _number(value: object) -> bool:
    """Return whether `value` is None (for not finite), or a number below 1e300 in size."""
    return value is None or (isinstance(value, int | float) and abs(value) < LARGEST)
