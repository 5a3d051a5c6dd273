"""Draw the panel of a training run in a terminal, and the report of that run, for the documentation.

python .github/pictures/draw.py DATASET CONFIG.toml       needs chromium for the report
"""

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from nmt_cli import config as settings
from nmt_cli.api import TrainConfig, train
from nmt_cli.cli.reports.training_output import LiveReporter
from nmt_cli.training.tracking.events import Doing, Event, Validated

PICTURES = Path(__file__).parents[2] / "nmt_cli" / "docs" / "pictures"
FONT = re.compile(r"@font-face {.*?}\s*", re.DOTALL)
"""The web font that rich names. Without it, a viewer uses its own monospace font."""

BROWSER = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")


@dataclass
class Watcher:
    """Passes events to `reporter`. `panel` is the latest panel of the training."""

    reporter: LiveReporter
    panel: Any = None

    def __call__(self, event: Event) -> None:
        """Pass on an event."""
        self.reporter(event)
        if (isinstance(event, Doing) and event.what == "training") or isinstance(event, Validated):
            self.panel = self.reporter.panel()


def draw(dataset: Path, config: Path) -> None:
    """Train with the settings of `config`, and write both pictures into `PICTURES`."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "en-de"
        console = Console(file=sys.stderr, width=100)
        watcher = Watcher(LiveReporter(run, console, Live(console=console, auto_refresh=False)))
        train(dataset, run, settings.read(TrainConfig, config), device="cpu", report=watcher)
        page = Console(record=True, width=100, file=(Path(folder) / "panel").open("w"))
        page.print(watcher.panel)
        drawn = FONT.sub("", page.export_svg(title="nmt train"))
        (PICTURES / "panel.svg").write_text(drawn, encoding="utf-8")
        shot = f"--screenshot={PICTURES / 'report.png'}"
        url = f"file://{run / 'report.html'}"
        subprocess.run([*BROWSER, "--hide-scrollbars", "--window-size=1100,900", shot, url], check=True)


if __name__ == "__main__":
    draw(*map(Path, sys.argv[1:]))
