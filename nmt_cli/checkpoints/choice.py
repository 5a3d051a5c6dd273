"""Choose the checkpoints to average: the newest, the best, or those that the user names."""

import warnings
from collections.abc import Sequence
from pathlib import Path

from nmt_cli.checkpoints.finding import checkpoints, find_model
from nmt_cli.checkpoints.run_folder import read_state
from nmt_cli.errors import Caution, UserError


def newest(run: Path, count: int) -> list[Path]:
    """Return the newest `count` checkpoints of a run, oldest first. Raise `UserError` if fewer exist."""
    existing = checkpoints(run)
    if len(existing) < count:
        raise _too_few(run, "checkpoints", list(existing), "last", count)
    return list(existing.values())[-count:]


def best(run: Path, count: int) -> list[Path]:
    """Return the `count` checkpoints with the best validation scores, best first.

    Of equal scores, the newer is better. If fewer checkpoints have a score, warn and return only these.
    Raise `UserError` if none has one.
    """
    existing = checkpoints(run)
    # The newest checkpoint has the scores of all validations, also of steps that were removed.
    scores = read_state([*existing.values()][-1]).get("scores", {}) if existing else {}
    by_step = {int(step): score for step, score in scores.items() if int(step) in existing}
    ranked = sorted(by_step, key=lambda step: (by_step[step], step), reverse=True)
    if not ranked:
        raise _too_few(run, "validated checkpoints", ranked, "best", count)
    if len(ranked) < count:
        steps = ", ".join(map(str, sorted(ranked)))
        message = f"--best {count} found only {len(ranked)} validated checkpoints in {run}: {steps}"
        warnings.warn(f"{message}. checkpoints.keep_best={count} keeps more", Caution, stacklevel=2)
    return [existing[step] for step in ranked[:count]]


def named(paths: Sequence[Path]) -> list[Path]:
    """Return the model folder of each path, in order. Links such as `best` are resolved.

    Raise `UserError` if a path is not a model, or if two paths lead to one folder.
    """
    found = [find_model(path) for path in paths]
    folders = [folder.resolve() if folder.is_symlink() else folder for folder in found]
    for number, folder in enumerate(folders):
        if any(folder.samefile(other) for other in folders[:number]):
            raise UserError(f"{folder} is named twice. Omit {paths[number]}.")
    return folders


def _too_few(run: Path, kind: str, steps: Sequence[int], option: str, count: int) -> UserError:
    """Return the error for a run that has fewer checkpoints than the user asked for.

    kind: what is missing, in the plural, such as "checkpoints".
    steps: the steps of those that there are.
    option: "last" or "best", the end of the setting that keeps more of them.
    count: the number that the user asked for.
    """
    numbers = ", ".join(map(str, steps))
    present = f"{kind} of steps {numbers} only" if steps else f"no {kind}"
    remedy = f"Use --{option} {len(steps)}" if steps else "Name models instead"
    return UserError(
        f"--{option} {count} is too large: {run} has {present}. {remedy}, or train with a smaller "
        f"--save-every and a larger checkpoints.keep_{option}."
    )
