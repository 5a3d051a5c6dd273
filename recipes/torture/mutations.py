"""Functions that damage a file, as accidents and attackers do."""

import hashlib
import io
import json
import os
import pickle
import resource
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

RAN = "ran"
"""Name of the file that code in a damaged file creates when it runs."""


class Runs:
    """An object that runs a program when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the call that unpickling executes."""
        return os.system, (f"touch {RAN}",)


def _zipped(*members: tuple[str, bytes]) -> bytes:
    """Return the bytes of a zip file with the names and contents `members`."""
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 3.5, 1e308, -5, 10**6, 10**18, 10**400),
    *("", "x", "\x1b[2J\x9b", "../../etc/passwd"),
    *("/dev/zero", "\ud800", "0" * 100_000, [], [[]], {}, {"x": 1}, ["x"], [0], [-1], [10**12]),
)
"""Replacements of values in JSON."""

BYTES = (
    b"\x00" * 100,
    b"\xff\xfe" * 50,
    b"\x1f\x8b" + b"x" * 100,
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"\n" * 10_000,
    b"a = " + b"[" * 100_000,
    b"\x93NUMPY\x01\x00\xff\xff" + b"{" * 65_535,
    b"\x93NUMPY\x01\x00v\x00{'descr': '<u2', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(128),
    b"\xff" * 7 + b"\x7f{}",
    b"#version: 0.2\n" + b"a " * 100_000,
    "e\u0301\u0323".encode() * 20_000,
    pickle.dumps(Runs(), protocol=2),
    _zipped(("a/data.pkl", pickle.dumps(Runs(), protocol=2)), ("a/version", b"3\n")),
    _zipped(
        (
            "special:model.yml.npy",
            b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(128)
            + pickle.dumps([Runs()]),
        )
    ),
    _zipped((f"../{RAN}", b""), (f"../../{RAN}", b"")),
    b"<srcset><doc>" + b"<seg id=" * 50_000,
    b"(" * 200_000,
)
"""Replacements of the complete content."""


def bit(path: Path, random: Random) -> None:
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    if content:
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    _replace(path, bytes(content))


def cut(path: Path, random: Random) -> None:
    """Truncate the file."""
    content = path.read_bytes()
    _replace(path, content[: random.randrange(len(content) or 1)])


def empty(path: Path, random: Random) -> None:
    """Empty the file."""
    _replace(path, b"")


def swapped(path: Path, random: Random) -> None:
    """Replace the content by that of another file in the folder."""
    candidates = [other for other in sorted(path.parent.iterdir()) if other.is_file() and other != path]
    if candidates:
        _replace(path, random.choice(candidates).read_bytes())


def missing(path: Path, random: Random) -> None:
    """Remove the file."""
    path.unlink()


def special(path: Path, random: Random) -> None:
    """Replace the file by a named pipe, a link to /dev/zero, a link to itself, or a folder."""
    path.unlink()
    match random.randrange(4):
        case 0:
            os.mkfifo(path)
        case 1:
            path.symlink_to("/dev/zero")
        case 2:
            path.symlink_to(path.name)
        case _:
            path.mkdir()


def hostile(path: Path, random: Random) -> None:
    """Replace the content by hostile content, and update the hashes of the folder and its parent."""
    if path.suffix == ".json" and random.random() < 0.8:
        _hostile_json(path, random)
    elif path.suffix == ".jsonl":
        _hostile_lines(path, random)
    elif path.suffix == ".toml" and random.random() < 0.8:
        _hostile_toml(path, random)
    else:
        # A long line would take long to translate.
        _replace(path, random.choice(BYTES)[: 2000 if path.suffix == ".gz" else None])
    for folder in (path.parent, path.parent.parent):
        agree(folder)


KINDS: Mapping[str, Callable[[Path, Random], None]] = {
    "one bit": bit,
    "cut": cut,
    "empty": empty,
    "swapped": swapped,
    "missing": missing,
    "special": special,
    "hostile": hostile,
}
"""Functions that damage the file at a path, by the name of the fault."""


SCARCE: Mapping[str, Callable[[Random], dict[int, int]]] = {
    "disk full": lambda random: {resource.RLIMIT_FSIZE: int(2 ** random.uniform(0, 17))},
    "out of descriptors": lambda random: {resource.RLIMIT_NOFILE: random.randint(4, 40)},
}
"""Faults without a damaged file: resource limits. A maximum file size acts like a full disk."""


def read_only(folder: Path) -> None:
    """Make a folder and its subfolders read-only."""
    for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        path.chmod(0o555)


def agree(folder: Path) -> None:
    """Update the hashes that a folder records to its current files, so that nmt notices no damage."""
    tokenizer = folder / "tokenizer"
    for name in ("config.json", "state.json", "dataset.json"):
        path = folder / name
        try:
            metadata = json.loads(path.read_bytes())
            for covered in metadata["files"]:
                content = (folder / covered).read_bytes()
                metadata["files"][covered] = {
                    "bytes": len(content),
                    "sha256": hashlib.sha256(content).hexdigest(),
                }
            if isinstance(metadata.get("tokenizer"), dict):
                metadata["tokenizer"]["fingerprint"] = _fingerprint(tokenizer)
            elif "tokenizer" in metadata and tokenizer.is_dir():
                metadata["tokenizer"] = _fingerprint(tokenizer)
            if "sha256" in metadata:
                del metadata["sha256"]
                metadata["sha256"] = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()
            path.write_text(json.dumps(metadata, indent=1), encoding="utf-8")
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue  # the file is damaged


def _fingerprint(folder: Path) -> str:
    """Return the fingerprint of a tokenizer folder, as nmt computes it."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode() + content)
    return digest.hexdigest()


def _hostile_json(path: Path, random: Random) -> None:
    """Remove, add or replace some values of a JSON file."""
    value = json.loads(path.read_bytes())
    entries = list(_entries(value))
    if not entries:
        return
    for _ in range(random.choice((1, 1, 1, 3))):
        parent, key = random.choice(entries)
        if random.random() < 0.15 and isinstance(parent, dict):
            parent.pop(key, None)
        elif random.random() < 0.1 and isinstance(parent, dict):
            parent[str(random.choice(VALUES))[:50]] = random.choice(VALUES)
        elif isinstance(parent, dict) or key < len(parent):
            parent[key] = random.choice(VALUES)
    _replace(path, json.dumps(value).encode())


def _entries(value: Any) -> list[tuple[Any, Any]]:
    """Return each object or list inside a JSON value with each of its keys or indices."""
    if not isinstance(value, dict | list):
        return []
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    return [(value, key) for key in keys] + [entry for key in keys for entry in _entries(value[key])]


def _hostile_lines(path: Path, random: Random) -> None:
    """Replace a line of a JSONL file by a line with a hostile value, or by a line that is not JSON."""
    lines = path.read_bytes().splitlines(keepends=True)
    number = random.randrange(len(lines))
    entry = json.loads(lines[number])
    entry[random.choice([*entry])] = random.choice(VALUES)
    lines[number] = random.choice(
        [json.dumps(entry).encode() + b"\n", b"\n", b"\xff\n", b"[" * 100_000 + b"\n"]
    )
    _replace(path, b"".join(lines))


def _hostile_toml(path: Path, random: Random) -> None:
    """Replace the value of a setting in a TOML file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    settings = [number for number, line in enumerate(lines) if "=" in line]
    number = random.choice(settings)
    name = lines[number].partition("=")[0]
    value = random.choice(
        ("-1", "0", "1e308", "nan", "true", '""', "[]", "{}", "9" * 5000, "1000000000000", '"\\u001b[2J"')
    )
    lines[number] = f"{name}= {value}"
    _replace(path, "\n".join(lines).encode())


def _replace(path: Path, content: bytes) -> None:
    """Write a new file at `path`. Other hard links to the old file keep its content."""
    path.unlink()
    path.write_bytes(content)
