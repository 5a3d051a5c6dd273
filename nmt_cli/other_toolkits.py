"""Suggest commands, flags and settings for names that other toolkits use, from `other_toolkits.toml`."""

import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any


@cache
def table() -> Mapping[str, Any]:
    """Return the content of `other_toolkits.toml`, which is read once."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def command_like(name: str, commands: Collection[str]) -> str | None:
    """Return the command that other toolkits call `name`, else the most similar of `commands`, else None."""
    plain = _plain(name).removesuffix("_py").removesuffix("_pl")
    named = (here for here, names in table()["commands"].items() if plain in names.split())
    return next(named, None) or next(iter(get_close_matches(name, commands, n=1)), None)


def named_here(name: str, own_names: Collection[str]) -> list[str]:
    """Return the option or setting for `name` of another toolkit, perhaps with a value, if `own_names` has
    it. Otherwise return flags in `own_names` that equal `name`. Without flags, return settings whose full
    name or last part equals `name`. Ignore case, and treat "-", "." and "_" as equal."""
    plain = _plain(name)
    for here, names in table()["options"].items():
        if plain in names.split() and here.partition("=")[0].split()[0] in own_names:
            return [here]
    own = [one for one in own_names if plain in (_plain(one), _plain(one.rpartition(".")[2]))]
    return [one for one in own if one.startswith("--")] or own


def not_here(name: str, own_names: Collection[str]) -> str | None:
    """Return why a command with the flags and settings `own_names` lacks the option `name`, or None."""
    plain, missing = _plain(name), table()["missing"]
    return next(
        (one["reason"] for one in missing if one["in"] in own_names and plain in one["names"].split()), None
    )


def _plain(name: str) -> str:
    return name.lower().lstrip("-").replace("-", "_").replace(".", "_")
