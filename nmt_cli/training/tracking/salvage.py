"""What can be saved of a log that is not what was written: lines that are whole, and how many are lost."""

import json
from collections.abc import Mapping
from typing import Any

from nmt_cli.training.position import Position
from nmt_cli.training.tracking.history import MEASURED

OF_STEPS = ("epoch", "source_tokens", "target_tokens", "tokens_per_second", "skipped")
MOST = 1e300
OF_VALIDATIONS = ("nll", "perplexity", "word_perplexity")


def salvaged(content: bytes, position: Position) -> tuple[bytes, list[str]]:
    """The whole lines up to `position`, each step and validation once; and in words what is lost."""
    kept: dict[tuple[int, str], bytes] = {}
    damaged = damaged_inside = 0
    for line in content.split(b"\n")[:-1]:  # the last was cut short, or is empty
        if not (found := _read(line)):
            damaged += 1
        elif found["step"] < position.step or (
            found["step"] == position.step and ("valid" not in found or str(position.step) in position.scores)
        ):
            kept.setdefault((found["step"], found.get("valid", "")), line)
            damaged_inside = damaged  # behind the last line there may be rubbish of a kill
    validated = {step for step, name in kept if name}
    counts = {
        "damaged lines": damaged_inside,
        "missing steps": position.step - sum(not name for _, name in kept),
        "missing validations": sum(int(step) not in validated for step in position.scores),
    }
    lost = [f"{count:,} {what}" for what, count in counts.items() if count]
    return b"".join(line + b"\n" for line in kept.values()), lost


def whole_lines(content: bytes) -> tuple[list[dict[str, Any]], int]:
    """What the whole lines of a log say, and how many others there are; the last may still be written."""
    found = [_read(line) for line in content.split(b"\n")[:-1]]
    return [line for line in found if line], found.count(None)


def _read(line: bytes) -> dict[str, Any] | None:
    """What a line says; None where those who read the log could not make sense of it."""
    try:
        content = json.loads(line)
        return content if _whole(content) else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _whole(line: Mapping[str, Any]) -> bool:
    if "valid" not in line:
        counts, measured = [line[name] for name in OF_STEPS], [line.get(name) for name in MEASURED]
        return _step(line) and None not in counts and all(map(_number, counts + measured))
    numbers = [*(line[name] for name in OF_VALIDATIONS), *(line[metric] for metric in line["signatures"])]
    texts = [line["valid"], *line["signatures"].values(), *line.get("samples", {}).values()]
    texts.append(line.get("scored_on", ""))
    return _step(line) and all(map(_number, numbers)) and all(isinstance(text, str) for text in texts)


def _number(value: object) -> bool:
    """Whether it is one that can be reckoned with, or None in place of one that was not finite."""
    return value is None or (isinstance(value, int | float) and abs(value) < MOST)


def _step(line: Mapping[str, Any]) -> bool:
    return isinstance(line["step"], int) and 0 < line["step"] < 2**53
