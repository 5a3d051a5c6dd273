"""Read the subset of YAML that Marian writes: settings in blocks, and vocabularies of pieces with ids."""

import re
from typing import Any

from nmt_cli.errors import UserError

ESCAPES = dict(zip('ntr0eabfvN_LP "\\/', '\n\t\r\0\x1b\a\b\f\v\x85\xa0\u2028\u2029 "\\/', strict=True))
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)

ID = re.compile("[0-9]{1,9}")


def settings(text: str, where: str) -> dict[str, Any]:
    """Return each key that is not indented, with its value or list. Comments, empty lines and nested keys are
    ignored. Raise `UserError`, which names `where` and the line, for any other line."""
    entries: dict[str, Any] = {}
    key = ""
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip()
        if not bare or bare.startswith(("#", "---", "...")):
            continue
        if bare.startswith("- ") and key:
            if not isinstance(entries[key], list):
                entries[key] = []
            entries[key].append(_value(bare[2:].strip()))
        elif bare == "[]" and key:
            entries[key] = []
        elif ":" in bare and line[0] != " ":
            key, _, value = bare.partition(":")
            entries[key] = _value(value.strip())
        elif line[0] != " ":
            raise UserError(f"{where}, line {number}: {bare[:40]!r} is not a setting. Copy it again.")
    return entries


def vocabulary(text: str, where: str) -> dict[str, int]:
    """Return the id of each piece. A line has a piece, which may be quoted, and its id. Comments and empty
    lines are ignored. Raise `UserError`, which names `where` and the line, for any other line."""
    entries: dict[str, int] = {}
    long_key: str | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.rstrip("\r")
        # A piece may begin with "#", so a comment needs a space after it.
        if not line.strip() or line.startswith(("---", "# ")):
            continue
        # YAML writes a long key after "? ", and its id on the next line.
        if line.startswith("? "):
            long_key = line[2:]
            continue
        # Split at the last colon: a piece may contain colons.
        key, colon, value = line.rpartition(":")
        if long_key is not None and not key:
            key, long_key = long_key, None
        if not colon or not ID.fullmatch(value.strip()):
            raise UserError(
                f"{where}, line {number}: {line[:40]!r} is not a piece and its id. Copy it again."
            )
        entries[_unquoted(key.strip())] = int(value)
    return entries


def quoted(piece: str) -> str:
    """Return a piece as a YAML key in double quotes. Unprintable characters become escapes."""
    escaped = piece.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'


def _unquoted(key: str) -> str:
    """Return the text of a YAML key or value without its quotes. Resolve escapes in double quotes."""
    if len(key) >= 2 and key[0] == key[-1] == '"':
        return ESCAPE.sub(_unescaped, key[1:-1])
    if len(key) >= 2 and key[0] == key[-1] == "'":
        return key[1:-1].replace("''", "'")
    return key


def _unescaped(escape: re.Match[str]) -> str:
    """Return the character of a match of `ESCAPE`, or U+FFFD for a code beyond Unicode."""
    code = escape[1] or escape[2] or escape[3]
    if code:
        number = int(code, 16)
        return chr(number) if number < 0x110000 else "\ufffd"
    return ESCAPES.get(escape[4], escape[4])


def _value(text: str) -> Any:
    """Return a YAML value as bool, int, float or text, the first that fits. `[]` becomes an empty list."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return [] if text == "[]" else _unquoted(text)
