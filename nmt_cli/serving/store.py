"""The folder of translated files and glossaries. All server processes on a port may share it.

`files/NAME` is a translated file, which ends `MAX_SECONDS` after it was written.
`glossaries/ID.json` is a glossary.
"""

import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import file_written_whole, temporary_folder
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary
from nmt_cli.runtime.locks import locked
from nmt_cli.serving.refused import Refused
from nmt_cli.text.glossary import Terms

MAX_FILES, MAX_SECONDS = 100, 600
"""Maximum number of translated files, and maximum age of a file in seconds."""

MAX_GLOSSARIES = 100


@dataclass(frozen=True, slots=True)
class StoredGlossary:
    """A glossary for many requests."""

    name: str
    source: str
    target: str
    terms: Terms
    key: str = field(default_factory=lambda: secrets.token_hex(16))
    """The id of the glossary, which nobody can guess."""

    created: datetime = field(default_factory=lambda: datetime.now(UTC))


class Store:
    """The translated files and glossaries in a folder. All methods may wait for the disk."""

    def __init__(self, folder: Path) -> None:
        """Make `folder` if it is missing. Raise `UserError` if it cannot be written."""
        self._files, self._glossaries = folder / "files", folder / "glossaries"
        self._read: dict[str, StoredGlossary] = {}  # stored glossaries never change
        for path in (self._files, self._glossaries):
            try:
                # Users have sent these texts, so no other user of the machine may read them.
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(f"{path} can't be made: {error.strerror}. Change server.folder.") from error
            if not os.access(path, os.W_OK | os.X_OK):
                raise UserError(f"{path} can't be written. Change its permissions, or server.folder.")
        self.remove_old_files()

    def remove_old_files(self) -> dict[str, Path]:
        """Remove translated files that are too old, and the oldest beyond `MAX_FILES`. Return the path of
        each other file by name, without those that a process is still writing."""
        times: dict[Path, int] = {}
        for path in self._files.iterdir():
            with suppress(FileNotFoundError):  # another process has removed it
                times[path] = path.stat().st_mtime_ns
        end = time.time_ns() - MAX_SECONDS * 10**9
        current = [path for path in times if times[path] > end and not path.name.startswith(".")]
        kept = sorted(current, key=lambda path: times[path])[-MAX_FILES:]
        unfinished = {path for path in times if times[path] > end}.difference(current)
        for path in times.keys() - unfinished.union(kept):
            path.unlink(missing_ok=True)
        return {path.name: path for path in kept}

    def add_file(self, name: str, content: bytes) -> None:
        """Store a translated file. Raise `Refused` (503) if the disk is full."""
        self._write(self._files / name, content)
        self.remove_old_files()

    def file(self, name: str) -> bytes | None:
        """Return the content of a translated file, or None if there is no such file."""
        # Another process may remove the file before it is read.
        with suppress(KeyError, FileNotFoundError):
            return self.remove_old_files()[name].read_bytes()
        return None

    def add_glossary(self, stored: StoredGlossary) -> None:
        """Store a glossary. Raise `Refused` beyond `MAX_GLOSSARIES` (400), or if the disk is full (503)."""
        content = {
            "name": stored.name,
            "source": stored.source,
            "target": stored.target,
            "created": stored.created.isoformat(),
            "terms": stored.terms,
        }
        with locked(self._glossaries):  # otherwise, processes would pass the limit together
            if len(self._paths()) >= MAX_GLOSSARIES:
                reason = f"The server has {MAX_GLOSSARIES:,} glossaries, its limit. Delete one first."
                raise Refused(400, reason)
            self._write(self._glossaries / f"{stored.key}.json", json.dumps(content).encode())
        self._read[stored.key] = stored

    def glossary(self, key: str) -> StoredGlossary | None:
        """Return a glossary by its id, or None if there is none."""
        if key in (paths := self._paths()):
            return self._read.get(key) or self._glossary_in(paths[key], key)
        self._read.pop(key, None)
        return None

    def glossaries(self) -> list[StoredGlossary]:
        """Return all glossaries, oldest first."""
        stored = [one for key in self._paths() if (one := self.glossary(key))]
        return sorted(stored, key=lambda one: one.created)

    def remove_glossary(self, key: str) -> None:
        """Remove a glossary by its id, if it exists."""
        if path := self._paths().get(key):
            path.unlink(missing_ok=True)

    def _paths(self) -> dict[str, Path]:
        """Return the file of each glossary by its id."""
        # A name with a dot at its beginning is that of a file that is still being written.
        return {path.stem: path for path in self._glossaries.glob("[!.]*.json")}

    def _glossary_in(self, path: Path, key: str) -> StoredGlossary | None:
        """Return the glossary in a file, or None if the file has been removed or is damaged."""
        try:
            values = parsed_json(read_ordinary(path))
            terms = {str(source): [*map(str, forms)] for source, forms in values["terms"].items()}
            name, source, target = (str(values[field]) for field in ("name", "source", "target"))
            created = datetime.fromisoformat(values["created"])
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError, AttributeError, OSError, UserError):
            print(f"Error: {path} is damaged. Remove it.", file=sys.stderr, flush=True)
            return None
        self._read[key] = StoredGlossary(name, source, target, terms, key, created)
        return self._read[key]

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        try:
            with file_written_whole(path) as file:
                file.write(content)
        except (UserError, OSError) as error:
            print(f"Error: {error}", file=sys.stderr, flush=True)
            raise Refused(503, "The server cannot store this now.") from error


@contextmanager
def opened_store(folder: str) -> Iterator[Store]:
    """Yield the store in `folder`. An empty name is a temporary folder, removed at the end of the block."""
    if folder:
        yield Store(Path(folder))
        return
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise UserError("no folder for temporary files can be written. Set server.folder.") from error
    with temporary_folder("nmt-serve-") as path:
        yield Store(path)
