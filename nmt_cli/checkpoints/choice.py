"""Which checkpoints of a run to average: the newest, the best, or some that lie minutes apart."""

import warnings
from collections.abc import Sequence
from pathlib import Path

from nmt_cli.checkpoints.finding import checkpoints, find_model
from nmt_cli.checkpoints.run_folder import STATE, read_state
from nmt_cli.errors import Caution, UserError


def newest(run: Path, count: int) -> list[Path]:
    """The last `count` checkpoints, oldest first."""
    there = checkpoints(run)
    if len(there) < count:
        raise _too_few(run, "checkpoints", list(there), "last", count)
    return list(there.values())[-count:]


def best(run: Path, count: int) -> list[Path]:
    """Return the `count` checkpoints with the best validation scores, best first, the older of equals.

    Checkpoints that were removed since do not count. Warns if there are fewer than `count`.
    """
    there = checkpoints(run)
    ranked = [step for step in _best_first(run) if step in there]
    if not ranked:
        raise _too_few(run, "validated checkpoints", ranked, "best", count)
    if len(ranked) < count:
        steps = ", ".join(map(str, sorted(ranked)))
        message = (
            f"{run} has {len(ranked)} of the {count} validated checkpoints that --best asks for: {steps}"
        )
        warnings.warn(f"{message}; checkpoints.keep_best={count} keeps more", Caution, stacklevel=2)
    return [there[step] for step in ranked[:count]]


def apart(run: Path, minutes: float, count: int) -> list[Path]:
    """`count` checkpoints written about so many minutes of training apart, oldest first.

    The newest is the last of them. Before each comes the one whose distance to it is nearest to `minutes`,
    and off by no more than half of that; of equals, the newer.
    """
    there = checkpoints(run)
    ages = {step: _stated_seconds(place) / 60 for step, place in there.items()}
    left = sorted(ages, reverse=True)
    chosen = left[:1]
    while len(chosen) < count and (older := [step for step in left if step < chosen[-1]]):
        wanted = ages[chosen[-1]] - minutes
        step = min(older, key=lambda step: abs(ages[step] - wanted))
        if abs(ages[step] - wanted) > minutes / 2:
            break
        chosen.append(step)
    if len(chosen) < count:
        times = ", ".join(f"step {step} at {age:.1f}" for step, age in ages.items())
        raise UserError(
            f"{run} has no {count} checkpoints about {minutes:g} minutes apart, only {len(chosen)}; it has "
            f"{times or 'none'} (minutes of training); take a smaller --last, or other --every-minutes."
        )
    return [there[step] for step in reversed(chosen)]


def named(paths: Sequence[Path]) -> list[Path]:
    """The model folders meant by `paths`, none of them twice.

    Links are followed, for a run at work may turn its own to another checkpoint.
    """
    found = [find_model(path) for path in paths]
    places = [place.resolve() if place.is_symlink() else place for place in found]
    for number, place in enumerate(places):
        if any(place.samefile(other) for other in places[:number]):
            raise UserError(f"{place} is named twice; leave out {paths[number]}.")
    return places


def _best_first(run: Path) -> list[int]:
    """Steps that were judged, by all that the newest checkpoint knows."""
    for place in reversed(checkpoints(run).values()):
        scores = {int(step): score for step, score in read_state(place).get("scores", {}).items()}
        return sorted(scores, key=lambda step: (-scores[step], step))
    return []


def _stated_seconds(place: Path) -> float:
    state = read_state(place)
    if "seconds" not in state:
        raise UserError(f"{place / STATE} does not say when it was written; take --last without minutes.")
    return float(state["seconds"])


def _too_few(run: Path, kind: str, steps: Sequence[int], way: str, count: int) -> UserError:
    numbers = ", ".join(map(str, steps))
    there = f"{kind} of these steps only: {numbers}" if steps else f"no {kind}"
    fewer = f"take --{way} {len(steps)}" if steps else "name models instead"
    cure = f"{fewer}, or train with a larger checkpoints.keep_{way}"
    return UserError(f"{run} has {there}; but --{way} asks for {count}: {cure}.")
