"""Nothing is saved before the dataset was found to be what was written, nor after it was changed."""

from concurrent.futures import Future, wait

from nmt_cli.data.watch import Watch
from nmt_cli.errors import UserError
from nmt_cli.training.step.distributed import Group
from nmt_cli.training.tracking.events import Note, Report

POLL_SECONDS = 0.1
LONG_WAIT = 30
"""So many looks at an unfinished check are worth a line."""

UNDER_WAY = "under way"


class DatasetCheck:
    """Joins what the ranks know of the dataset, each on its machine."""

    def __init__(self, verified: "Future[None]", watch: Watch, group: Group, report: Report) -> None:
        """`verified` fails where the dataset is not what was written."""
        self._verified, self._watch, self._group, self._report = verified, watch, group, report

    def look(self) -> None:
        """Raise `UserError` for what this rank knows by now, at no cost."""
        if self._verified.done():
            self._verified.result()
        self._watch.refuse_cut()

    def refuse_unsound(self) -> None:
        """Wait for the check on all ranks, who all call this; `UserError` where one of them finds a fault."""
        looks = 0
        # All ranks see the same answers, so they leave this loop together, and none waits for a rank that has
        # gone on.
        while UNDER_WAY in (told := self._group.gather(self._told())):
            looks += 1
            if looks == LONG_WAIT:
                self._report(
                    Note("the check of the dataset is still under way; nothing is saved before it ends")
                )
            wait([self._verified], POLL_SECONDS)
        if problem := next(filter(None, told), None):
            raise UserError(problem)

    def explain(self) -> None:
        """After an error: raise the `UserError` that explains it, where it is the dataset's."""
        self._verified.result()
        self._watch.refuse_changed()

    def gone(self) -> bool:
        """Whether any rank, all of whom ask, finds no dataset or another one where it was."""
        return any(self._group.gather(self._watch.gone()))

    def _told(self) -> str:
        if not self._verified.done():
            return UNDER_WAY
        try:
            self.explain()
        except UserError as error:
            return str(error)
        return ""
