"""Raw parallel text to a finished dataset folder.

    find inputs -> clean (parallel) -> learn subwords -> encode (parallel) -> merge -> manifest -> rename

Cleaning writes prepared text to a work folder, part by part, encoding reads it from there and writes ids
beside it: nothing holds the corpus in memory, a run that is stopped goes on with the parts that are missing,
and no byte of the result depends on the number of workers, stops or machines.
"""

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nmt_cli import __version__
from nmt_cli.data.cleaning.filter_page import filter_page
from nmt_cli.data.cleaning.filters import Filters
from nmt_cli.data.cleaning.report import FilterReport
from nmt_cli.data.dataset import (
    FILTER_PAGE,
    FILTER_REPORT,
    MANIFEST,
    TOKENIZERS,
    TRAIN,
    check_sizes,
    read_manifest,
    write_manifest,
)
from nmt_cli.data.preprocessing import reuse
from nmt_cli.data.preprocessing.evaluation_sets import write_evaluation_set
from nmt_cli.data.preprocessing.hold_out import drawn_sets
from nmt_cli.data.preprocessing.job import Input, Job, describe_job, differences, find_inputs
from nmt_cli.data.preprocessing.merge import merge_parts
from nmt_cli.data.preprocessing.parts import (
    Share,
    clean_part,
    drop_damaged,
    drop_work,
    kept_if_worth_it,
    open_work,
    work_place,
    written_whole,
)
from nmt_cli.data.preprocessing.training_set import (
    clean_parts,
    draw_sample,
    encode_parts,
    gather_report,
    parts_of,
)
from nmt_cli.data.verify import check_hashes
from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import folder_written_whole, recover, refuse_other_files, room_for
from nmt_cli.runtime.processes import Progress, in_child
from nmt_cli.text.config import TokenizerConfig
from nmt_cli.text.tokenizers import Tokenizers, adopt_tokenizers, learn_tokenizers, load_tokenizers

EVERYTHING = Share()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The dataset that was made, or that was there already."""

    manifest: dict[str, Any]
    """Empty where only a share of the work was asked for."""

    report: FilterReport | None
    """None where the dataset was there already, or only a share was asked for."""

    parts: tuple[int, int] = (0, 0)
    """Of a share: how many parts of the corpus are cleaned by now, and how many there are."""

    remade: tuple[str, ...] = ()
    """Folders of the work folder that were damaged and so were made again."""


def preprocess(
    job: Job, out: Path, workers: int, overwrite: bool, progress: Progress, share: Share = EVERYTHING
) -> Outcome:
    """Make the dataset `out`, unless it is there, whole, and made of the same inputs and settings.

    A `share` of several machines leaves its parts beside `out`; who is asked for all of it merges them. What
    a run that was stopped has done is not done again.
    """
    for filters in (job.config.filter, *job.filters):
        Filters(filters)  # refuses a script that there is none of, and a library that is missing
    recover(out)
    refuse_other_files(out, "dataset", MANIFEST)
    plan = reuse.plan(job)
    progress("reading", 0, 0)
    with ExitStack() as stack:
        with room_for(out):
            # Beside the dataset, which needs more room than it: the system's own temporary folder may be
            # small.
            spool_folder = out.resolve().with_name(f".nmt-stdin-{os.getpid()}")
            stack.callback(shutil.rmtree, spool_folder, ignore_errors=True)
            inputs = find_inputs(job, spool_folder)
            inputs += drawn_sets(job, inputs, spool_folder)
        job, plan = _with_symbols(job, plan, inputs)
        description = describe_job(job, inputs, plan.reused)
        if (out / MANIFEST).exists() and not _differs(out, description, overwrite):
            drop_work(work_place(out))
            return Outcome(read_manifest(out), None)
        if share.machines > 1:
            work = open_work(out, description, shared=True, overwrite=overwrite)
            remade = drop_damaged(work, share)
            with room_for(out):
                parts = _make_share(work, job, plan, inputs, share, workers, progress)
            return Outcome({}, None, parts, remade)
        folder = stack.enter_context(folder_written_whole(out))
        work = open_work(out, description, shared=False, overwrite=overwrite)
        remade = drop_damaged(work, share)
        with kept_if_worth_it(work):
            report, splits, tokenizers = _make(folder, work, job, plan, inputs, workers, progress)
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
    drop_work(work)
    return Outcome(manifest, report, remade=remade)


def _make(
    folder: Path,
    work: Path,
    job: Job,
    plan: reuse.Plan,
    inputs: Sequence[Input],
    workers: int,
    progress: Progress,
) -> tuple[FilterReport, dict[str, Any], Tokenizers]:
    """Write everything but the manifest into `folder`; `work` may hold parts that are done."""
    report = FilterReport()
    training = [item for item in inputs if item.role == TRAIN]
    parts = parts_of(training)
    clean_parts(inputs, job.config, plan.recipe, work, Share(), workers, progress)
    gather_report(training, work, report)
    progress("learning subwords", 0, 0)
    place = _tokenizers_in(work, plan, parts, job.config.tokenizer)
    shutil.copytree(place, folder / TOKENIZERS)
    tokenizers = load_tokenizers(place)
    evaluation = {
        item.corpus.name: write_evaluation_set(item, job.config, tokenizers, folder, report)
        for item in inputs
        if item.role in ("valid", "test")
    }
    encode_parts(tokenizers, place, work, range(parts), workers, progress)
    train = merge_parts(training, job.config, tokenizers, folder, work, report, progress)
    page = filter_page(report, job.config.filter, job.source_lang, job.target_lang)
    for name, content in ((FILTER_REPORT, report.as_json()), (FILTER_PAGE, page)):
        (folder / name).write_text(content, encoding="utf-8", errors="backslashreplace")
    return report, {TRAIN: train, **evaluation}, tokenizers


def _make_share(
    work: Path,
    job: Job,
    plan: reuse.Plan,
    inputs: Sequence[Input],
    share: Share,
    workers: int,
    progress: Progress,
) -> tuple[int, int]:
    """Clean the parts of one machine, and encode them if the subwords are known; returns how many parts are
    cleaned by now, by all machines, and how many there are."""
    training = [item for item in inputs if item.role == TRAIN]
    parts = parts_of(training)
    clean_parts(inputs, job.config, plan.recipe, work, share, workers, progress)
    if plan.ready:
        place = _tokenizers_in(work, plan, parts, job.config.tokenizer)
        ours = [part for part in range(parts) if share.has(part)]
        encode_parts(plan.ready, place, work, ours, workers, progress)
    return sum(clean_part(work, part).exists() for part in range(parts)), parts


def _tokenizers_in(work: Path, plan: reuse.Plan, parts: int, config: TokenizerConfig) -> Path:
    """The folder of the tokenisers in the work folder, where they may be already."""
    place = work / TOKENIZERS
    if not place.exists():
        with written_whole(place) as folder:
            task = (folder / TOKENIZERS, work, parts, plan, config)
            if (
                plan.recipe.kind == "sentencepiece"
            ):  # whose learner would not hear Ctrl-C, and takes much memory
                in_child(_save_tokenizers, task)
            else:
                _save_tokenizers(task)
    return place / TOKENIZERS


def _save_tokenizers(task: tuple[Path, Path, int, reuse.Plan, TokenizerConfig]) -> None:
    folder, work, parts, plan, config = task
    if plan.ready:
        tokenizers = plan.ready
    elif plan.models:
        # Of the two, only codes look at text, for their alphabet.
        sample = draw_sample(work, parts, config) if plan.recipe.kind == "bpe" else {}
        tokenizers = adopt_tokenizers(plan.recipe, plan.models, sample)
    else:
        tokenizers = learn_tokenizers(plan.recipe, config, draw_sample(work, parts, config))
    tokenizers.save(folder)


def _with_symbols(job: Job, plan: reuse.Plan, inputs: Sequence[Input]) -> tuple[Job, reuse.Plan]:
    """Add to the tokeniser's symbols the tags of corpora, and the brackets and tags of training trees.

    As one id each the latter make targets half as long as if they were split. A tokeniser that is reused
    whole must have the former already.
    """
    if any(item.corpus.form == "trees" for item in inputs) and plan.recipe.moses("target"):
        raise UserError(
            "the leaves of trees are words already, and the Moses tokeniser would split them once more; "
            "give --set text.words=raw."
        )
    if any(item.corpus.form == "trees" for item in inputs) and plan.recipe.placeholders:
        raise UserError("trees have no placeholders; leave tokenizer.placeholders out.")
    found = {symbol for item in inputs if item.role == TRAIN for symbol in item.corpus.symbols()}
    tags = {corpus.tag: corpus.name for corpus in job.config.corpus.named if corpus.tag}
    if plan.ready and (lacking := next((tag for tag in tags if tag not in plan.recipe.symbols), None)):
        raise UserError(
            f"[[corpus]] {tags[lacking]}: tag {lacking} is no symbol of {job.reuse}, which is reused "
            f"({', '.join(plan.recipe.symbols) or 'it has none'}); take one it has, or learn anew."
        )
    found |= tags.keys()
    if plan.ready or not found:
        return job, plan
    given = job.config.tokenizer.symbols
    tokenizer = replace(job.config.tokenizer, symbols=(*given, *sorted(found - set(given))))
    job = replace(job, config=replace(job.config, tokenizer=tokenizer))
    return job, replace(plan, recipe=replace(plan.recipe, symbols=tokenizer.all_symbols))


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
