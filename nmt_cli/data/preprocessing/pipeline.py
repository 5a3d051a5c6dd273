"""Making of a dataset folder from raw parallel text.

    find inputs -> clean (parallel) -> learn subwords -> encode (parallel) -> merge -> manifest -> rename

Cleaning writes prepared text to a work folder, part by part. Encoding reads it there and writes the ids
beside it. So memory does not grow with the corpus, and an interrupted run resumes with the missing parts. The
result is byte-identical for any number of workers and interruptions.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from nmt_cli import __version__
from nmt_cli.data.cleaning.filter_report import FilterReport, filter_page
from nmt_cli.data.cleaning.filters import Filters
from nmt_cli.data.dataset import (
    FILTER_PAGE,
    FILTER_REPORT,
    MANIFEST,
    TOKENIZERS,
    TRAIN,
    check_sizes,
    damaged,
    read_manifest,
    write_manifest,
)
from nmt_cli.data.guard import check_hashes
from nmt_cli.data.preprocessing import reuse
from nmt_cli.data.preprocessing.alignments import write_alignments
from nmt_cli.data.preprocessing.evaluation_sets import drawn_sets, write_evaluation_set
from nmt_cli.data.preprocessing.job import PreprocessJob, describe_job, differences, facts, find_inputs
from nmt_cli.data.preprocessing.merge import merge_parts
from nmt_cli.data.preprocessing.parts import (
    WORTH_KEEPING,
    drop_damaged,
    drop_work,
    open_work,
    work_folder,
    written_whole,
)
from nmt_cli.data.preprocessing.scores import score_corpora
from nmt_cli.data.preprocessing.training_set import (
    Run,
    clean_parts,
    draw_sample,
    encode_parts,
    gather_report,
)
from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import (
    folder_written_whole,
    parents_made,
    recover,
    refuse_other_files,
    reporting_full_disk,
    resolved,
    temporary_folder,
)
from nmt_cli.runtime.processes import Progress, in_child
from nmt_cli.text.config import TokenizerConfig
from nmt_cli.text.model_languages import TAG, ModelLanguages
from nmt_cli.text.tokenizers import Tokenizers, adopt_tokenizers, learn_tokenizers, load_tokenizers


@dataclass(frozen=True, slots=True, repr=False)
class Outcome:
    """The result of a run: a dataset that was made, or was already up to date."""

    manifest: dict[str, Any]
    report: FilterReport | None
    """The filter report. None if the dataset was already up to date."""

    remade: tuple[str, ...] = ()
    """The names of damaged folders in the work folder that were made again."""

    def __repr__(self) -> str:
        pairs = (f"{name} {split['pairs']:,}" for name, split in self.manifest["splits"].items())
        return f"<Outcome, pairs: {', '.join(pairs)}>"


def preprocess(job: PreprocessJob, out: Path, workers: int, overwrite: bool, progress: Progress) -> Outcome:
    """Make a dataset, unless it exists and is up to date.

    - `job`: the inputs and the settings.
    - `out`: the folder of the dataset.
    - `workers`: the number of processes that clean and encode.
    - `overwrite`: whether a dataset of other inputs or settings is replaced.
    - `progress`: called with the stage, the work done, and the total.

    Finished parts of an interrupted run with the same job are used. Raise `UserError` for unusable inputs or
    settings, or if `out` exists, differs and `overwrite` is false.
    """
    # Before anything is read, which may take long.
    _check_filters(job)
    recover(out)
    refuse_other_files(out, "dataset", MANIFEST)
    plan = reuse.plan(job)
    if job.config.corpus.given_alignments and plan.recipe.placeholders:
        name = "alignments" if any(job.config.corpus.alignments) else "alignment_column"
        raise UserError(
            f"corpus.{name} counts words, but placeholder symbols replace some. Set corpus.align instead."
        )
    progress("reading", 0, 0)
    with ExitStack() as stack:
        with reporting_full_disk(out):
            # Made only if it is needed, and once.
            spool_folder = cache(lambda: stack.enter_context(_spool_folder(out)))
            inputs = find_inputs(job, spool_folder)
            job, plan = _with_tags(job, plan)
            plan = _with_languages(job, plan)
            inputs += drawn_sets(job, inputs, plan.recipe.symbols, spool_folder)
        # After the sets are drawn, since their pairs decide the dataset too.
        description = describe_job(job, inputs, plan.reused)
        if (out / MANIFEST).exists() and not _differs(out, description, overwrite):
            drop_work(work_folder(out))
            return Outcome(read_manifest(out), None)
        folder = stack.enter_context(folder_written_whole(out))
        work = work_folder(out)
        try:
            open_work(work, facts(description))
            remade = drop_damaged(work)
            run = Run(job, inputs, plan, work, workers, progress)
            report, splits, tokenizers = _make(run, folder)
        except BaseException:
            if len(list(work.glob("clean-*"))) < WORTH_KEEPING and not list(work.glob("scores-*")):
                drop_work(work)
            raise
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
    return Outcome(manifest, report, remade)


@contextmanager
def _spool_folder(out: Path) -> Iterator[Path]:
    """Yield a new folder beside `out` for copies of stdin and pipes. It is removed when the block ends."""
    target = resolved(out)
    # The system's temporary folder may be too small, but the dataset's disk must have space.
    with parents_made(target), temporary_folder(".nmt-stdin-", target.parent) as folder:
        yield folder


def _check_filters(job: PreprocessJob) -> None:
    """Raise `UserError` for an unknown script, or a missing package. The message names the corpus whose
    filter is wrong."""
    Filters(job.config.filter)
    for corpus in job.config.corpus.named:
        try:
            Filters(corpus.filter(job.config.filter))
        except UserError as error:
            raise UserError(f"filters of {corpus.name}: {error.message}") from error


def _make(run: Run, folder: Path) -> tuple[FilterReport, dict[str, Any], Tokenizers]:
    """Write all files of the dataset except the manifest, and return the report, the splits for the manifest,
    and the tokenizers.

    Only parts that the work folder lacks are made. Raise `UserError` if no pair is left.
    """
    score_corpora(run)
    clean_parts(run)
    report = gather_report(run)
    run.progress("learning subwords", 0, 0)
    tokenizer_folder = _tokenizers_in(run)
    # Copied and not moved, because workers load them there, and so does a run that resumes.
    shutil.copytree(tokenizer_folder, folder / TOKENIZERS)
    tokenizers = load_tokenizers(tokenizer_folder)
    evaluation = {
        item.corpus.name: write_evaluation_set(item, run.config, tokenizers, folder, report)
        for item in run.inputs
        if item.role in ("valid", "test")
    }
    encode_parts(run, tokenizers, tokenizer_folder)
    train = merge_parts(run, tokenizers, folder, report)
    if run.config.corpus.aligns:
        write_alignments(run, tokenizers, folder, [corpus.kept for corpus in report.of_role(TRAIN)])
    page = filter_page(report, run.config.filter, run.job.source_lang, run.job.target_lang)
    for name, content in ((FILTER_REPORT, report.as_json()), (FILTER_PAGE, page)):
        (folder / name).write_text(content, encoding="utf-8", errors="backslashreplace")
    return report, {TRAIN: train, **evaluation}, tokenizers


def _tokenizers_in(run: Run) -> Path:
    """Return the folder of the tokenizers in the work folder. If it is missing, the tokenizers are first
    learned, built or copied."""
    finished = run.work / TOKENIZERS
    if not finished.exists():
        with written_whole(finished) as folder:
            task = (folder / TOKENIZERS, run.work, len(run.parts), run.plan, run.config.tokenizer)
            # SentencePiece ignores Ctrl-C while it learns, and takes much memory.
            if run.plan.recipe.kind == "sentencepiece":
                in_child(_save_tokenizers, task)
            else:
                _save_tokenizers(task)
    return finished / TOKENIZERS


def _save_tokenizers(task: tuple[Path, Path, int, reuse.TokenizerPlan, TokenizerConfig]) -> None:
    """Save the tokenizers of a plan to a folder.

    `task` has the folder, the work folder, the number of parts, the plan, and the settings of learning. It is
    one argument, because this may run in another process.
    """
    folder, work, parts, plan, config = task
    if plan.ready:
        tokenizers = plan.ready
    elif plan.models:
        # BPE codes need a sample for their alphabet. SentencePiece models do not.
        sample = draw_sample(work, parts, config) if plan.recipe.kind == "bpe" else {}
        tokenizers = adopt_tokenizers(plan.recipe, plan.models, sample)
    else:
        tokenizers = learn_tokenizers(plan.recipe, config, draw_sample(work, parts, config))
    tokenizers.save(folder)


def _with_tags(job: PreprocessJob, plan: reuse.TokenizerPlan) -> tuple[PreprocessJob, reuse.TokenizerPlan]:
    """Return the job and the plan with the tags of corpora as symbols. Reused tokenizers do not change, so
    raise `UserError` if they lack a tag."""
    tags = {corpus.tag: corpus.name for corpus in job.config.corpus.named if corpus.tag}
    if plan.ready and (missing := next((tag for tag in tags if tag not in plan.recipe.symbols), None)):
        raise UserError(
            f"[[corpus]] {tags[missing]}: tag {missing} is not a symbol of {job.reuse} "
            f"(it has {', '.join(plan.recipe.symbols) or 'none'}). Use one of them, or learn new subwords."
        )
    if plan.ready or not tags:
        return job, plan
    own = job.config.tokenizer.symbols
    tokenizer = replace(job.config.tokenizer, symbols=(*own, *sorted(tags.keys() - set(own))))
    job = replace(job, config=replace(job.config, tokenizer=tokenizer))
    return job, replace(plan, recipe=replace(plan.recipe, symbols=tokenizer.all_symbols))


def _with_languages(job: PreprocessJob, plan: reuse.TokenizerPlan) -> reuse.TokenizerPlan:
    """Return the plan with the languages of the corpora, if any `[[corpus]]` section names its own. Reused
    tokenizers keep theirs."""
    named = job.config.corpus.named
    if plan.ready or not any(corpus.source_lang or corpus.target_lang for corpus in named):
        return plan
    tags: dict[tuple[str, str], str] = {}
    for corpus in named:
        tag = TAG.fullmatch(corpus.tag)
        target = corpus.target_lang or (tag["name"] if tag else job.target_lang)
        # Of several corpora of a direction, the first decides.
        tags.setdefault((corpus.source_lang or job.source_lang, target), corpus.tag)
    languages = ModelLanguages(
        sources={source: "" for source, _ in tags},
        targets={target: tag for (_, target), tag in tags.items()},
        pairs=tuple(tags),
    )
    return replace(plan, recipe=replace(plan.recipe, languages=languages))


def _differs(out: Path, description: dict[str, Any], overwrite: bool) -> bool:
    """Return whether the existing dataset `out` is damaged, or was made by another job than that of
    `description`.

    If `overwrite` is false, raise `UserError` instead of returning True.
    """
    try:
        manifest = read_manifest(out)
        check_sizes(out, manifest)
        changed = differences(manifest, description)
        # "Up to date" must be true of every byte.
        if not changed:
            check_hashes(out, manifest)
    except (UserError, LookupError, TypeError, AttributeError) as error:
        # A damaged dataset is never up to date.
        if overwrite:
            return True
        if isinstance(error, UserError):
            raise
        raise damaged(out / MANIFEST, f"is damaged ({error!r})") from error
    if changed and not overwrite:
        raise UserError(
            f"{out} was made with other inputs or settings ({'; '.join(changed)}). "
            "Give --overwrite to make it again, or another --out."
        )
    return bool(changed)
