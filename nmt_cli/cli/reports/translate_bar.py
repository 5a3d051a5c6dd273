"""What `nmt translate` shows on a terminal while it is at work."""

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn


class LinesBar(Progress):
    """How many lines are done, and how many a second."""

    def __init__(self) -> None:
        columns = TextColumn("{task.completed:,.0f} lines"), TextColumn("{task.fields[rate]}")
        super().__init__(*columns, TimeElapsedColumn(), console=Console(stderr=True))
        self._lines = self.add_task("", total=None, rate="")

    def show(self, lines: int, rate: float) -> None:
        """So many are done by now."""
        self.update(self._lines, completed=lines, rate=f"{rate:,.1f}/s")
