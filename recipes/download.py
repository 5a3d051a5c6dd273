"""Fetches the archives that a recipe lists, and takes out of them what the recipe needs.

    python recipes/download.py LIST.toml --out FOLDER

LIST.toml has a table for each archive: `name`, `urls` (tried in turn), `sha256` or `md5` where one is known,
and `members`, from a path in the archive to the name it gets in FOLDER. Archives go to FOLDER/archives; one
that lies there already, put by hand, is as good as a download.

- A download that was cut off goes on where it stopped, if the server can do that.
- Nothing has its final name before it is whole and its checksum is right.
- The SHA-256 of an archive with no known checksum is noted in FOLDER/archives/checksums.txt when it is first
  seen, and said; from then on it has to stay the same.
- Where all members are in place nothing is fetched, so that archives can be deleted.
"""

import argparse
import hashlib
import os
import shutil
import sys
import tarfile
import time
import tomllib
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import IO

ROUNDS = 3
"""How often all addresses are tried."""

PIECE = 1 << 20
"""Bytes that are read at a time."""

PATIENCE = 60.0
"""Seconds without a byte after which a connection counts as lost."""

NEWS_EVERY = 10.0
"""Seconds between two lines on how far a download is."""


class Failure(Exception):
    """What the user is told in one line."""


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive, where it can be had, and what is wanted of it."""

    name: str
    urls: list[str]
    members: dict[str, str]
    sha256: str = ""
    md5: str = ""

    @property
    def checksum(self) -> tuple[str, str]:
        """The algorithm and the digest that is known; the latter is empty where none is."""
        return ("md5", self.md5) if self.md5 else ("sha256", self.sha256)


@dataclass(slots=True)
class Progress:
    """Says now and then how much of a file is there."""

    name: str
    total: int
    last: float = field(default_factory=time.monotonic)

    def at(self, done: int) -> None:
        if time.monotonic() - self.last >= NEWS_EVERY:
            self.last = time.monotonic()
            say(f"{self.name}: {done / 1e6:,.0f} of {self.total / 1e6:,.0f} MB")


def say(line: str) -> None:
    """News, which is no result."""
    print(line, file=sys.stderr, flush=True)


def read_list(path: Path) -> list[Archive]:
    """The archives of a list."""
    return [Archive(**table) for table in tomllib.loads(path.read_text("utf-8"))["archive"]]


def provide(archive: Archive, folder: Path) -> None:
    """Put the members of `archive` into `folder`, unless all are there."""
    if all((folder / name).exists() for name in archive.members.values()):
        return
    place = folder / "archives" / archive.name
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        verify(archive, place, place)
    else:
        fetch(archive, place)
    unpack(archive, place, folder)


def fetch(archive: Archive, place: Path) -> None:
    """Download from the first address that gives the whole file."""
    failures: dict[str, str] = {}
    for attempt in range(ROUNDS):
        for url in archive.urls:
            # A part belongs to its address: two servers need not have the same file.
            part = place.with_name(f"{place.name}.{hashlib.sha256(url.encode()).hexdigest()[:8]}.part")
            try:
                say(f"{archive.name}: from {url}")
                receive(url, part, archive.name)
                verify(archive, part, place)
            except (OSError, HTTPException, Failure) as error:
                failures[url] = str(error) or type(error).__name__
                say(f"{archive.name}: {failures[url]}")
                continue
            part.replace(place)
            return
        if attempt + 1 < ROUNDS:
            time.sleep(2**attempt)
    raise Failure(
        f"{archive.name} could not be had: "
        + "; ".join(f"{url}: {failure}" for url, failure in failures.items())
        + f". Get it elsewhere and put it at {place}."
    )


def receive(url: str, part: Path, name: str) -> None:
    """Append to `part` what of `url` is not in it yet, or all of it where the server cannot begin there."""
    begun = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={begun}-"} if begun else {})
    try:
        response = urllib.request.urlopen(request, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        if error.code == 416 and error.headers.get("Content-Range") == f"bytes */{begun}":
            return  # it was complete
        if error.code == 416:
            part.unlink()
        raise
    with response:
        if "text/html" in response.headers.get("Content-Type", ""):
            raise Failure("this is a web page, not the file")
        goes_on = getattr(response, "status", None) == 206
        if not goes_on:
            begun = 0
        total = begun + int(response.headers.get("Content-Length") or 0)
        with part.open("ab" if goes_on else "wb") as out:
            copy(response, out, Progress(name, total), begun)
    if part.stat().st_size < total:
        raise Failure(f"the connection was lost after {part.stat().st_size:,} of {total:,} bytes")


def copy(stream: IO[bytes], out: IO[bytes], progress: Progress, done: int) -> None:
    """All bytes from here to there; what has come is kept when the connection is lost."""
    while piece := stream.read(PIECE):
        out.write(piece)
        done += len(piece)
        progress.at(done)


def verify(archive: Archive, file: Path, place: Path) -> None:
    """Compare `file`, which is or will be at `place`, with the checksum that is known or was noted."""
    algorithm, expected = archive.checksum
    notes = place.with_name("checksums.txt")
    noted = {name: known for known, name in (line.split("  ", 1) for line in lines_of(notes))}
    found = digest(file, algorithm)
    if not expected and archive.name not in noted:
        with notes.open("a", encoding="utf-8") as out:
            out.write(f"{found}  {archive.name}\n")
        say(f"{archive.name}: no checksum is known; its sha256, {found}, is noted in {notes}")
        return
    expected = expected or noted[archive.name]
    if found != expected:
        if file != place:
            file.unlink()
            raise Failure(f"its {algorithm} is {found}, but should be {expected}")
        raise Failure(f"the {algorithm} of {place} is {found}, but should be {expected}; {advice(place)}")


def advice(place: Path) -> str:
    """What to do about an archive that is not what it should be."""
    return f"delete {place} and start again."


def lines_of(file: Path) -> list[str]:
    return file.read_text("utf-8").splitlines() if file.exists() else []


def digest(file: Path, algorithm: str) -> str:
    """The checksum of a file in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


def unpack(archive: Archive, place: Path, folder: Path) -> None:
    """Write each wanted member to its name in `folder`, whole or not at all."""
    missing = dict(archive.members)
    try:
        with tarfile.open(place) as tar:
            for member in tar:
                wanted = missing.pop(member.name.removeprefix("./"), None)
                if wanted is not None and (content := tar.extractfile(member)):
                    write(content, folder / wanted)
                if not missing:
                    break
    except (tarfile.TarError, EOFError, OSError) as error:
        raise Failure(f"{place} cannot be unpacked ({error}); {advice(place)}") from error
    if missing:
        raise Failure(f"{place} has no {', '.join(missing)}; is it another archive of that name?")
    say(f"{archive.name}: {', '.join(archive.members.values())}")


def write(content: IO[bytes], place: Path) -> None:
    """All of `content` under the name `place`, which is there only when it is whole."""
    unfinished = place.with_name(f".{place.name}.unfinished")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    with unfinished.open("wb") as out:
        shutil.copyfileobj(content, out, PIECE)
        out.flush()
        os.fsync(out.fileno())
    unfinished.replace(place)


def main() -> None:
    """Read the options and provide all that the lists name."""
    parser = argparse.ArgumentParser(description="Fetch the archives of a recipe and unpack what it needs.")
    parser.add_argument("lists", type=Path, nargs="+", metavar="LIST.toml")
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    options = parser.parse_args()
    try:
        for archive in [archive for path in options.lists for archive in read_list(path)]:
            provide(archive, options.out)
    except (Failure, OSError) as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
