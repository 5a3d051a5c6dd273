"""Guards the run folder: only one process trains in it, and it holds nothing but a run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.checkpoints.run_folder import sweep
from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import refuse_other_files
from nmt_cli.runtime.locks import take_lock
from nmt_cli.training.settings import CONFIG


@contextmanager
def claimed(run: Path) -> Iterator[None]:
    """Create the run folder if missing, lock it for the block, and remove leftovers of killed saves. Raise
    `UserError` if the folder is locked, cannot be written, or has other files."""
    refuse_foreign(run)
    try:
        run.mkdir(parents=True, exist_ok=True)
        folder = os.open(run, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"{run} can't be written: {error.strerror}. Choose another --out.") from error
    try:
        try:
            take_lock(folder, run)
        except BlockingIOError as error:
            raise UserError(
                f"another process is training in {run} now. Wait for it, or choose another --out."
            ) from error
        sweep(run)
        yield
    finally:
        os.close(folder)  # releases the lock, as the death of the process does


def refuse_foreign(run: Path) -> None:
    """Raise `UserError` if `run` is a file, or has visible files but no checkpoint or `config.toml`."""
    if not checkpoints(run):
        refuse_other_files(run, "run", CONFIG, hidden=False)


def newest_checkpoint(run: Path) -> Path | None:
    """Return the folder of the newest checkpoint of a run, or None if the run has no checkpoint."""
    return next(iter(reversed(checkpoints(run).values())), None)
