"""The values of settings: which are of a kind, what is wanted in words, and how TOML writes them."""

import json
import math
from typing import Any, Literal, get_args, get_origin


def toml_literal(value: object) -> str:
    """`value` as one would write it in a TOML file."""
    # TOML writes true, Python True.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # JSON leaves the character 7F as it is, which TOML forbids.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(toml_literal, value)) + "]"
    return str(value)


def converted(value: object, kind: Any) -> object | None:
    """`value` as a `kind`, or None where it isn't one."""
    if get_origin(kind) is Literal:
        return value if value in get_args(kind) else None
    if get_origin(kind) is tuple:
        items = (
            [converted(item, get_args(kind)[0]) for item in value]
            if isinstance(value, list | tuple)
            else [None]
        )
        return None if None in items else tuple(items)
    # Not `isinstance`, for which true and false are whole numbers.
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is float and not math.isfinite(value):
        return None
    if isinstance(value, str) and value[:1] != "/" and value != value.encode(errors="ignore").decode():
        return None  # only the name of a file may be what is not UTF-8
    return value if type(value) is kind else None


def wanted(kind: Any) -> str:
    """In words, what a value of that kind is."""
    if get_origin(kind) is Literal:
        return " or ".join(map(toml_literal, get_args(kind)))
    if get_origin(kind) is tuple:
        return "a list, each item " + wanted(get_args(kind)[0])
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in UTF-8"}
    return names[kind]
