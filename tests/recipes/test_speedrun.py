"""The table of the speed record, from results of Multi30k."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.config import preset_path, read
from nmt_cli.training.config import TrainConfig
from recipes.results import stored
from recipes.speedrun import records

RECIPES = Path(records.__file__).parents[1]


def result(entry: str, seed: int, bleu: float, hours: float) -> dict[str, Any]:
    """Return a result of recipes/multi30k with what the table reads."""
    settings, updates = (records.ENTRIES[entry][key] for key in ("settings", "updates"))
    run = {"settings": settings, "language": "de", "updates": updates, "seed": seed, "hours": hours}
    return run | {"tests": {"test_2016_flickr": bleu}, "threads": 2, "devices": 1, "device": "CPU"}


def verdicts(results: list[dict[str, Any]], folder: Path) -> dict[str, list[str]]:
    rows = (line.strip("| \n").split(" | ") for line in records.table(results, folder).splitlines()[2:])
    return {row[0]: [row[4], row[5], row[6], row[8]] for row in rows}


def test_an_entry_is_a_record_if_the_mean_of_its_seeds_reaches_the_goal_in_less_time(tmp_path: Path) -> None:
    plain = [result("plain", seed, bleu, 1.0) for seed, bleu in ((4, 40.9), (5, 41.0), (6, 41.1))]
    muon = [result("muon", seed, 41.5, 0.5) for seed in (1, 2, 3)]
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "muon-2.jsonl").touch()
    assert verdicts(plain + muon[:2], tmp_path) == {
        "plain": ["41.00 ± 0.10", "120.00 ± 0.00 (1 x CPU)", "yes", "not kept"],
        "muon": ["41.50 ± 0.00", "60.00 ± 0.00 (1 x CPU)", "seeds 3 are missing", "[2](logs/muon-2.jsonl)"],
    }
    assert verdicts(plain + muon, tmp_path)["muon"][2] == "yes"
    slow = [one | {"hours": 2.0} for one in muon]
    assert verdicts(plain + slow, tmp_path)["muon"][2] == "no, slower"
    low = [result("muon", seed, 40.99, 0.1) for seed in (1, 2, 3)]
    assert verdicts(plain + low, tmp_path)["muon"][2] == "misses the goal"


def test_the_readme_has_the_table_of_the_stored_results() -> None:
    readme = (RECIPES / "speedrun" / "README.md").read_text(encoding="utf-8")
    assert records.table(stored(RECIPES / "multi30k")) in readme


@pytest.mark.parametrize("name", records.ENTRIES)
def test_each_entry_has_settings_for_the_preset_tiny(name: str) -> None:
    command = [sys.executable, str(RECIPES / "speedrun" / "records.py"), "entry", name]
    settings, updates, *seeds = subprocess.check_output(command, text=True).split()
    config = read(TrainConfig, RECIPES / "multi30k" / f"{settings}.toml", preset=preset_path("tiny"))
    assert config.model.width == read(TrainConfig, preset=preset_path("tiny")).model.width
    assert int(updates) > 0 and len(seeds) == 3
