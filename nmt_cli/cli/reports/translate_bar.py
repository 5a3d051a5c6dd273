"""The progress of `nmt translate` on a terminal."""

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn


class LinesBar(Progress):
    """Shows the number of translated lines, the rate and the elapsed time."""

    def __init__(self) -> None:
        columns = TextColumn("{task.completed:,.0f} lines"), TextColumn("{task.fields[rate]}")
        super().__init__(*columns, TimeElapsedColumn(), console=Console(stderr=True))
        self._lines = self.add_task("", total=None, rate="")

    def show(self, lines: int, rate: float) -> None:
        """Set the number of translated lines, and the rate in lines per second."""
        self.update(self._lines, completed=lines, rate=f"{rate:,.1f} lines/s")
