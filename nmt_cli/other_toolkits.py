"""Suggest commands, options, settings and values for names of other toolkits, from `other_toolkits.toml`.

An answer is a sentence about a name that has no counterpart of the same meaning.
"""

import re
import shlex
import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

YAML_KEY = re.compile(r"^\s*(?:- )?([\w-]+):(?:\s|$)", re.MULTILINE)
TOML_LINE = re.compile(r"^\s*(?:\[.+\]|[\w.-]+\s*=.*)$", re.MULTILINE)


REAL_SHARE = 0.88
"""Fraction of real tokens among fairseq's padded ones, measured on Multi30k with `--max-tokens 4096`."""


@cache
def table() -> Mapping[str, Any]:
    """Return the content of `other_toolkits.toml`, which is read once."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def command_like(name: str, commands: Collection[str]) -> str | None:
    """Return the command that other toolkits call `name`, else the most similar of `commands`, else None."""
    plain = _plain(name).removesuffix("_py").removesuffix("_pl")
    named = (here for here, names in table()["commands"].items() if plain in names.split())
    return next(named, None) or next(iter(get_close_matches(name, commands, n=1)), None)


def named_here(name: str, own_names: Collection[str], value: str = "") -> list[str]:
    """Return what replaces the option `name` of another toolkit, if `own_names` has it: an option, perhaps
    with a choice, or settings with spaces between them, perhaps with values. `value` is the user's value.
    Return nothing if the table has an answer instead. Otherwise return flags in `own_names` that equal
    `name`. Without flags, return settings whose full name or last part equals `name`. Ignore case, and treat
    "-", "." and "_" as equal."""
    for form in _forms(name, value):
        for here, names in table()["options"].items():
            if re.split("[ =]", here)[0] in own_names and _among(form, names):
                return [here]
        if _answer(form, own_names):
            return []
    plain = _plain(name)
    own = [one for one in own_names if plain in (_plain(one), _plain(one.rpartition(".")[2]))]
    return [one for one in own if one.startswith("--")] or own


def not_here(name: str, own_names: Collection[str], value: str = "") -> str | None:
    """Return the answer for the option `name` to a command with the flags and settings `own_names`, or None.
    `value` is the user's value."""
    answers = (_answer(form, own_names) for form in _forms(name, value))
    answer = next(filter(None, answers), None)
    return answer and answer.replace("{value}", shlex.quote(value))


def note_on(suggestion: str) -> str | None:
    """Return what a user must know about `suggestion`, a result of `named_here`, or None."""
    note: str | None = table()["notes"].get(suggestion)
    return note


def first_batch_size(options: Mapping[str, str]) -> str | None:
    """Return a sentence with a value of `--batch-tokens` to begin with, or None. `options` has the values of
    the user's options of another toolkit by name.

    fairseq's `--max-tokens` counts the padded tokens of one GPU in one of `--update-freq` parts of a step.
    Marian's `--mini-batch-words` counts real tokens, of all GPUs if they update together.
    """
    sizes = {_plain(name): int(value) for name, value in options.items() if value.isdecimal()}
    if words := sizes.get("mini_batch_words"):
        return (
            f"Begin with --batch-tokens {words}. Without --sync-sgd, also see nmt help from-other-toolkits."
        )
    if not (padded := sizes.get("max_tokens")):
        return None
    parts = sizes.get("update_freq") or 1
    # Two digits, because the share varies with the text.
    real = float(f"{padded * parts * REAL_SHARE:.1e}")
    shown = f"{padded:,} x {parts}" if parts > 1 else f"{padded:,}"
    return (
        f"Begin with --batch-tokens {max(real, 1):.0f}, times the number of GPUs: {shown} padded tokens are "
        "about as many real ones."
    )


def value_here(name: str, value: str) -> str | None:
    """Return the value of our option or setting `name` that other toolkits call `value`, or None."""
    for here, values in table()["values"].items():
        ours, _, own_value = here.partition("=")
        if ours == name and _plain(value) in values.split():
            return str(own_value)
    return None


def toolkit_of_yaml(text: str) -> str | None:
    """Return the toolkit whose configuration the YAML `text` looks like, "" for an unknown one. Return None
    if the text does not look like YAML."""
    keys = {_plain(key) for key in YAML_KEY.findall(text)}
    if not keys or TOML_LINE.search(text):  # TOML with a mistake
        return None
    found = {toolkit: len(keys & {*names.split()}) for toolkit, names in table()["yaml"].items()}
    best = max(found, key=lambda toolkit: found[toolkit])
    return best if found[best] > 1 else ""


def _forms(name: str, value: str) -> tuple[str, str]:
    """Return the forms of an option in the table: with its value, and without."""
    return f"{_plain(name)}={_plain(value)}", _plain(name)


def _answer(form: str, own_names: Collection[str]) -> str | None:
    owned = (answers for owner, answers in table()["answers"].items() if owner in own_names)
    texts = (text for answers in owned for text, names in answers.items() if _among(form, names))
    return next(texts, None)


def _among(form: str, names: str) -> bool:
    """Return whether the words of `names` have `form`. In words, * stands for any characters."""
    return any(form == name or ("*" in name and fnmatchcase(form, name)) for name in names.split())


def _plain(name: str) -> str:
    return name.lower().lstrip("-").replace("-", "_").replace(".", "_")
