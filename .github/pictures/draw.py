"""Draws the pictures of the README: the panel of a run on a terminal, and the report of that run.

python .github/pictures/draw.py DATASET CONFIG.toml       needs chromium for the report
"""

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from nmt_cli import config as settings
from nmt_cli.api import TrainConfig, train
from nmt_cli.cli.reports.train_live import LiveReporter
from nmt_cli.training.tracking.events import Doing, Event, Validated

HERE = Path(__file__).parent
FONT = re.compile(r"@font-face {.*?}\s*", re.DOTALL)
"""Rich would have it fetched from the network; there is a monospace one everywhere."""

BROWSER = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")


@dataclass
class Watcher:
    """Hands events on, and keeps the newest panel of a run that is training."""

    reporter: LiveReporter
    panel: Any = None
    told: list[str] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        """Read one event."""
        self.reporter(event)
        if (isinstance(event, Doing) and event.what == "training") or isinstance(event, Validated):
            self.panel = self.reporter.panel()


def draw(dataset: Path, config: Path) -> None:
    """Train for as long as the settings say, and write both pictures beside this file."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "en-de"
        console = Console(file=sys.stderr, width=100)
        watcher = Watcher(LiveReporter(run, console, Live(console=console, auto_refresh=False)))
        train(dataset, run, settings.read(TrainConfig, config), device="cpu", report=watcher)
        page = Console(record=True, width=100, file=(Path(folder) / "panel").open("w"))
        page.print(watcher.panel)
        drawn = FONT.sub("", page.export_svg(title="nmt train"))
        (HERE / "panel.svg").write_text(drawn, encoding="utf-8")
        shot = f"--screenshot={HERE / 'report.png'}"
        url = f"file://{run / 'report.html'}"
        subprocess.run([*BROWSER, "--hide-scrollbars", "--window-size=1100,900", shot, url], check=True)


if __name__ == "__main__":
    draw(*map(Path, sys.argv[1:]))
