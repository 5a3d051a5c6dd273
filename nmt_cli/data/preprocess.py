"""Raw parallel text to a finished dataset folder.

    find inputs -> clean (parallel) -> learn subwords -> encode (parallel) -> manifest -> rename into place

Cleaning writes prepared text to a work folder, encoding reads it from there: nothing holds the corpus in
memory, and no byte of the result depends on the number of workers.
"""

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nmt_cli import __version__
from nmt_cli.data import reuse
from nmt_cli.data.dataset import (
    FILTER_REPORT,
    MANIFEST,
    TOKENIZERS,
    TRAIN,
    check_sizes,
    read_manifest,
    write_manifest,
)
from nmt_cli.data.evaluation_sets import write_evaluation_set
from nmt_cli.data.filters import Filters
from nmt_cli.data.job import Input, Job, describe_job, differences, find_inputs
from nmt_cli.data.report import FilterReport
from nmt_cli.data.training_set import WORK, clean_training_set, draw_sample, encode_training_set
from nmt_cli.data.verify import check_hashes
from nmt_cli.errors import UserError
from nmt_cli.machine.atomic import folder_written_whole, recover, room_for
from nmt_cli.machine.processes import Progress, in_child
from nmt_cli.text.config import TokenizerConfig
from nmt_cli.text.tokenizers import Tokenizers, adopt_tokenizers, learn_tokenizers, load_tokenizers


@dataclass(frozen=True, slots=True)
class Outcome:
    """The dataset that was made, or that was there already."""

    manifest: dict[str, Any]
    report: FilterReport | None
    """None where the dataset was there already."""


def preprocess(job: Job, out: Path, workers: int, overwrite: bool, progress: Progress) -> Outcome:
    """Make the dataset `out`, unless it is there, whole, and made of the same inputs and settings."""
    Filters(job.config.filter)  # refuses a script that there is none of
    recover(out)
    _refuse_foreign(out)
    plan = reuse.plan(job)
    progress("reading", 0, 0)
    with ExitStack() as stack:
        with room_for(out):
            # Beside the dataset, which needs more room than it: the system's own temporary folder may be
            # small.
            spool_folder = out.resolve().with_name(f".nmt-stdin-{os.getpid()}")
            stack.callback(shutil.rmtree, spool_folder, ignore_errors=True)
            inputs = find_inputs(job, spool_folder)
        job, plan = _with_symbols_of_trees(job, plan, inputs)
        description = describe_job(job, inputs, plan.reused)
        if (out / MANIFEST).exists() and not _differs(out, description, overwrite):
            return Outcome(read_manifest(out), None)
        folder = stack.enter_context(folder_written_whole(out))
        report, splits, tokenizers = _make(folder, job, plan, inputs, workers, progress)
        progress("finishing", 0, 0)
        summary = {
            "fingerprint": tokenizers.fingerprint,
            "kind": tokenizers.recipe.kind,
            "joint": tokenizers.recipe.joint,
            "source_vocabulary": len(tokenizers.source.vocabulary),
            "target_vocabulary": len(tokenizers.target.vocabulary),
        }
        manifest = {"nmt": __version__, **description, "tokenizer": summary, "splits": splits}
        write_manifest(folder, manifest)
    return Outcome(manifest, report)


def _make(
    folder: Path,
    job: Job,
    plan: reuse.Plan,
    inputs: Sequence[Input],
    workers: int,
    progress: Progress,
) -> tuple[FilterReport, dict[str, Any], Tokenizers]:
    """Write everything but the manifest into `folder`."""
    report = FilterReport()
    training = [item for item in inputs if item.role == "train"]
    clean_training_set(training, job.config, plan.recipe, folder, report, workers, progress)
    progress("learning subwords", 0, 0)
    task = (folder, plan, job.config.tokenizer)
    if plan.recipe.kind == "sentencepiece":  # whose learner would not hear Ctrl-C, and takes much memory
        in_child(_save_tokenizers, task)
    else:
        _save_tokenizers(task)
    tokenizers = load_tokenizers(folder / TOKENIZERS)
    evaluation = {
        item.corpus.name: write_evaluation_set(item, job.config, tokenizers, folder, report)
        for item in inputs
        if item.role != "train"
    }
    train = encode_training_set(job.config, tokenizers, folder, report, workers, progress)
    # Before the manifest is written, which names every file that is there.
    shutil.rmtree(folder / WORK)
    (folder / FILTER_REPORT).write_text(report.as_json(), encoding="utf-8", errors="backslashreplace")
    return report, {TRAIN: train, **evaluation}, tokenizers


def _save_tokenizers(task: tuple[Path, reuse.Plan, TokenizerConfig]) -> None:
    folder, plan, config = task
    if plan.ready:
        tokenizers = plan.ready
    elif plan.models:
        # Of the two, only codes look at text, for their alphabet.
        sample = draw_sample(folder, config) if plan.recipe.kind == "bpe" else {}
        tokenizers = adopt_tokenizers(plan.recipe, plan.models, sample)
    else:
        tokenizers = learn_tokenizers(plan.recipe, config, draw_sample(folder, config))
    tokenizers.save(folder / TOKENIZERS)


def _with_symbols_of_trees(job: Job, plan: reuse.Plan, inputs: Sequence[Input]) -> tuple[Job, reuse.Plan]:
    """Add the brackets and tags of training trees to the tokeniser's symbols, unless it is reused.

    As one id each they make targets half as long as if they were split.
    """
    if any(item.corpus.form == "trees" for item in inputs) and plan.recipe.moses("target"):
        raise UserError(
            "the leaves of trees are words already, and the Moses tokeniser would split them once more; "
            "give --set text.words=raw."
        )
    if any(item.corpus.form == "trees" for item in inputs) and plan.recipe.placeholders:
        raise UserError("trees have no placeholders; leave tokenizer.placeholders out.")
    found = {symbol for item in inputs if item.role == TRAIN for symbol in item.corpus.symbols()}
    if plan.ready or not found:
        return job, plan
    given = job.config.tokenizer.symbols
    tokenizer = replace(job.config.tokenizer, symbols=(*given, *sorted(found - set(given))))
    job = replace(job, config=replace(job.config, tokenizer=tokenizer))
    return job, replace(plan, recipe=replace(plan.recipe, symbols=tokenizer.all_symbols))


def _refuse_foreign(out: Path) -> None:
    if out.is_dir() and any(out.iterdir()) and not (out / MANIFEST).exists():
        raise UserError(f"{out} holds files, but no {MANIFEST}, so it is no dataset; choose another --out.")
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; choose another --out.")


def _differs(out: Path, description: dict[str, Any], overwrite: bool) -> bool:
    """Whether `out` must be made again; `UserError` where that needs `overwrite`."""
    try:
        manifest = read_manifest(out)
        check_sizes(out, manifest)
        changed = _changed(out, manifest, description)
        if not changed:  # who is told that nothing is to be done goes by that
            check_hashes(out, manifest)
    except UserError:
        # A damaged dataset is never up to date.
        if overwrite:
            return True
        raise
    if changed and not overwrite:
        raise UserError(
            f"{out} was made otherwise ({'; '.join(changed)}); "
            "give --overwrite to make it again, or another --out."
        )
    return bool(changed)


def _changed(out: Path, manifest: dict[str, Any], description: dict[str, Any]) -> list[str]:
    try:
        return differences(manifest, description)
    except (LookupError, TypeError, AttributeError) as error:
        told = f"{out / MANIFEST} is damaged ({error!r})"
        raise UserError(f"{told}; make the dataset again with --overwrite.") from error
