"""Writes `report.html`, a page about the whole run in one file, after each validation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.config import as_toml
from nmt_cli.data.dataset import TRAIN, Dataset, Split, raw_lines
from nmt_cli.errors import UserError
from nmt_cli.html.compose import compose
from nmt_cli.model.cost import parameters
from nmt_cli.runtime.atomic import file_written_whole
from nmt_cli.runtime.devices import gpu_name
from nmt_cli.text.tokenizer import SIDES
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.step.trainer import Trainer
from nmt_cli.training.tracking.events import Event, Report, Spent, Standing, Warned
from nmt_cli.training.tracking.history import MEASURED, Moment, RunHistory, Validation, evenly
from nmt_cli.training.validation.judge import sample_lines, translated_lines

REPORT = "report.html"

P100 = 9.5e12
"""Floating-point operations per second of one device in the paper's estimate of its training cost."""

PAPER_RUNS = {"base": (12.0, 8), "big": (84.0, 8)}
"""Hours and number of devices that the paper used to train its two models. Its Table 2 shows their cost."""

VALIDATIONS = 500
"""Maximum number of validations of a set in its curves."""

SCRIPTS = ("charts.js", "curves.js", "page.js")
"""Scripts of the page, in `page/`."""

TRANSLATIONS = 40
"""Maximum number of validations whose translations are shown."""

Sentences = Mapping[int, tuple[str, str]]
"""Source and reference by line number, from 0."""


@dataclass(frozen=True, slots=True)
class HtmlReport:
    """A reader of the events of a run. It writes the HTML report at each `Standing` event."""

    run: Path
    """The run folder, in which the report is written."""

    languages: tuple[str, str]
    """Source and target language."""

    facts: Mapping[str, str]
    """Facts about the run that are known before its first step, by label."""

    sentences: Mapping[str, Sentences]
    """The sentences of each validation set whose translations are shown."""

    config: TrainConfig
    history: RunHistory
    """The live history of the run."""

    warn: Report

    def __call__(self, event: Event) -> None:
        """Replace the report at a `Standing` event, and ignore other events. Warn if writing fails."""
        if not isinstance(event, Standing):
            return
        parts = resources.files("nmt_cli.training.tracking") / "page"
        page = compose("nmt train", parts, SCRIPTS, self._content(event))
        try:
            with file_written_whole(self.run / REPORT) as file:
                file.write(page.encode(errors="backslashreplace"))
        except (OSError, UserError) as error:
            self.warn(Warned(f"the report could not be written, training continues: {error}"))

    def _content(self, standing: Standing) -> dict[str, Any]:
        """Return the data of the page as JSON values. `standing` gives state, cost and remaining time."""
        now = self.history.now
        by_set: dict[str, list[Validation]] = {}
        for validation in self.history.validations:
            by_set.setdefault(validation.name, []).append(validation)
        return {
            "name": self.run.resolve().name,
            "languages": self.languages,
            "state": standing.state,
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "step": now.step,
            "max_steps": self.config.training.max_steps,
            "epoch": now.epoch + 1,
            "epoch_of": now.epoch_of,
            "tokens": now.target_tokens,
            "skipped": now.skipped,
            "seconds": round(3600 * standing.spent.hours),
            "seconds_left": round(standing.seconds_left),
            "curves": _curves(self.history),
            "losses": {
                "loss": _rounded(self.history.losses.smoothed),
                "nll": _rounded(self.history.losses.nll),
            },
            "validations": [_judged(name, validations) for name, validations in by_set.items()],
            "samples": [self._samples(name, validations) for name, validations in by_set.items()],
            "cost": _cost(standing.spent),
            "facts": list(self.facts.items()),
            "settings": as_toml(self.config),
        }

    def _samples(self, name: str, validations: Sequence[Validation]) -> dict[str, Any]:
        """Return a set's samples, with translations of up to `TRANSLATIONS` validations, "" if missing."""
        shown = evenly(
            [validation for validation in validations if "samples" in validation.line], TRANSLATIONS
        )
        sentences = [
            {
                "line": line + 1,
                "source": source,
                "reference": reference,
                # Keys in JSON are strings.
                "translations": [validation.line["samples"].get(str(line), "") for validation in shown],
            }
            for line, (source, reference) in self.sentences.get(name, {}).items()
        ]
        scores = [_rounded(validation.scores.get("bleu")) for validation in shown]
        steps = [validation.at.step for validation in shown]
        return {"set": name, "step": steps, "bleu": scores, "sentences": sentences}


def _curves(history: RunHistory) -> dict[str, Any]:
    """Return the axes, and the mean, minimum and maximum of each measurement at each point. They are None if
    no value was finite."""
    curves: dict[str, Any] = _axes([point.end for point in history.points])
    for name in MEASURED:
        spreads = [point.values[name] for point in history.points]
        curves[name] = {
            "mean": [_rounded(spread.total / spread.count if spread.count else None) for spread in spreads],
            "low": [_rounded(spread.low) for spread in spreads],
            "high": [_rounded(spread.high) for spread in spreads],
        }
    return curves


def _cost(spent: Spent) -> dict[str, Any]:
    """Return operations, hours and cost of training, and the costs of the paper's two models."""
    paper = {
        name: {"hours": hours, "devices": devices, "flops": _paper_cost(hours * devices)}
        for name, (hours, devices) in PAPER_RUNS.items()
    }
    return {
        "model_flops": _rounded(spent.model_flops),
        "hours": _rounded(spent.hours),
        "device_hours": _rounded(spent.device_hours),
        "flops": _paper_cost(spent.device_hours),
        "device_flops": P100,
        "paper": paper,
    }


def _paper_cost(device_hours: float) -> float | None:
    """Return the cost as the paper computes it, in operations: device time x peak speed of its devices."""
    return _rounded(device_hours * 3600 * P100)


def _judged(name: str, validations: Sequence[Validation]) -> dict[str, Any]:
    """Return axes, losses and scores of a set, for up to `VALIDATIONS` validations and the best ones.
    Signatures and scores by length come from the newest validation. `validations` must not be empty."""
    metrics = list(validations[-1].scores)
    # By identity, because a validation contains a dict and so has no hash.
    best = {id(max(validations, key=lambda v: v.scores.get(metric, 0.0))) for metric in metrics}
    spread = {id(validation) for validation in evenly(validations, VALIDATIONS)}
    shown = [validation for validation in validations if id(validation) in best | spread]
    return {
        "set": name,
        **_axes([validation.at for validation in shown]),
        **{
            key: [_rounded(validation.line[key]) for validation in shown]
            for key in ("nll", "perplexity", "word_perplexity")
        },
        "scores": {
            metric: [_rounded(validation.scores.get(metric)) for validation in shown] for metric in metrics
        },
        # Runs of earlier versions have no scores by length.
        "by_length": validations[-1].line.get("by_length", []),
        "signatures": validations[-1].line["signatures"],
        "scored_on": validations[-1].line.get("scored_on", ""),
        "decoded": validations[-1].line.get("decoded", "weights"),
    }


def _axes(moments: Sequence[Moment]) -> dict[str, list[Any]]:
    """Return the values of each horizontal axis, for each moment: steps, target tokens and hours."""
    return {
        "step": [moment.step for moment in moments],
        "tokens": [moment.target_tokens for moment in moments],
        "hours": [_rounded(moment.hours) for moment in moments],
    }


def _rounded(value: float | None) -> float | None:
    """Return `value` with five significant digits, or None if it is None or not finite."""
    # A chart shows no more digits, and a page of thousands of numbers stays small.
    return float(f"{value:.5g}") if value is not None and math.isfinite(value) else None


def html_report(
    run: Path, dataset: Dataset, identity: Identity, trainer: Trainer, history: RunHistory, warn: Report
) -> HtmlReport:
    """Return the reader that writes the report from `history`. Errors of writing go to `warn`."""
    return HtmlReport(
        run,
        languages=(dataset.manifest["source_lang"], dataset.manifest["target_lang"]),
        facts=_facts(dataset, identity, trainer),
        sentences={split.name: _sentences(dataset, split, trainer.config) for split in dataset.valid_sets},
        config=trainer.config,
        history=history,
        warn=warn,
    )


def _facts(dataset: Dataset, identity: Identity, trainer: Trainer) -> dict[str, str]:
    """Return facts about the run by label: dataset, sizes, tokens per step, and devices."""
    device, world = trainer.group.device, trainer.group.process.world
    name = gpu_name(device) or "CPU"
    batch = trainer.config.batch.tokens
    return {
        "Dataset": str(dataset.folder.resolve()),
        "Training pairs": f"{len(dataset.splits[TRAIN]):,}",
        "Vocabulary": f"{len(identity.tokenizers.target.vocabulary):,}",
        "Parameters": f"{parameters(trainer.model):,}",
        "Tokens per step": f"up to {batch:,} source and {batch:,} target tokens",
        "Devices": f"{world} × {name}, {trainer.precision.name}",
    }


def _sentences(dataset: Dataset, split: Split, config: TrainConfig) -> Sentences:
    """Return source and reference by line number (from 0) of the sentences that the report shows."""
    source, reference = (raw_lines(dataset, split, side) for side in SIDES)
    return {
        line: (source[line], reference[line])
        for line in sample_lines(translated_lines(config.validation, split))
    }
