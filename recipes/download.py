"""Download the archives that a recipe lists, and extract the files that the recipe needs.

    python recipes/download.py LIST.toml --out FOLDER

LIST.toml has a table for each archive: `name`, `urls` (tried in order), `sha256` or `md5` if known, and
`members`. `members` maps paths in the archive to file names in FOLDER. Archives go to FOLDER/archives.
You can put an archive there yourself.

- An interrupted download resumes, if the server supports it.
- A file gets its final name only when it is complete and its checksum is right.
- If no checksum is known, the SHA-256 of the first download is recorded in FOLDER/archives/checksums.txt and
  printed. Later runs require the same checksum.
- If all members exist, nothing is downloaded, so the archives can be deleted.
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

ATTEMPTS = 3
"""Attempts for each address."""

CHUNK = 1 << 20
"""Bytes per read."""

PATIENCE = 60.0
"""Seconds without data until a connection counts as lost."""

PROGRESS_SECONDS = 10.0
"""Seconds between two progress lines."""


class DownloadError(Exception):
    """An error that `main` reports in one line."""


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive, its addresses, and the members to extract."""

    name: str
    urls: list[str]
    members: dict[str, str]
    sha256: str = ""
    md5: str = ""

    @property
    def checksum(self) -> tuple[str, str]:
        """Return the algorithm and the expected digest. If the digest is unknown, return "" for it."""
        return ("md5", self.md5) if self.md5 else ("sha256", self.sha256)


@dataclass(slots=True)
class Progress:
    """Prints every `PROGRESS_SECONDS` how many of `total` bytes of the file `name` have arrived."""

    name: str
    total: int
    last: float = field(default_factory=time.monotonic)

    def update(self, done: int) -> None:
        """Print a line if the time has come. `done` is the number of bytes that have arrived."""
        if time.monotonic() - self.last >= PROGRESS_SECONDS:
            self.last = time.monotonic()
            report(f"{self.name}: {done / 1e6:,.0f} of {self.total / 1e6:,.0f} MB")


def report(line: str) -> None:
    """Print a progress line on stderr."""
    print(line, file=sys.stderr, flush=True)


def read_list(path: Path) -> list[Archive]:
    """Return the archives in the file LIST.toml at `path`."""
    return [Archive(**table) for table in tomllib.loads(path.read_text("utf-8"))["archive"]]


def provide(archive: Archive, folder: Path) -> None:
    """Download and extract `archive` into `folder`, unless all of its members exist there.

    Raise DownloadError if it cannot be downloaded, is damaged, or lacks a member.
    """
    if all((folder / name).exists() for name in archive.members.values()):
        return
    path = folder / "archives" / archive.name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        verify(archive, path, path)
    else:
        fetch(archive, path)
    unpack(archive, path, folder)


def fetch(archive: Archive, path: Path) -> None:
    """Download `archive` to `path` from the first address that sends the complete file.

    Raise DownloadError if every address fails `ATTEMPTS` times.
    """
    failures: dict[str, str] = {}
    for attempt in range(ATTEMPTS):
        for url in archive.urls:
            # Two servers may have different files, so each address has its own partial download.
            part = path.with_name(f"{path.name}.{hashlib.sha256(url.encode()).hexdigest()[:8]}.part")
            try:
                report(f"{archive.name}: from {url}")
                receive(url, part, archive.name)
                verify(archive, part, path)
            except (OSError, HTTPException, DownloadError) as error:
                failures[url] = str(error) or type(error).__name__
                report(f"{archive.name}: {failures[url]}")
                continue
            part.replace(path)
            return
        if attempt + 1 < ATTEMPTS:
            time.sleep(2**attempt)
    raise DownloadError(
        f"{archive.name} cannot be downloaded ("
        + ", ".join(f"{url}: {failure}" for url, failure in failures.items())
        + f"). Get it elsewhere and put it at {path}."
    )


def receive(url: str, part: Path, name: str) -> None:
    """Append the missing bytes of `url` to the file `part`. Start over if the server cannot resume.

    `name` is for progress lines. Raise DownloadError for a lost connection or a web page.
    """
    offset = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={offset}-"} if offset else {})
    try:
        response = urllib.request.urlopen(request, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        if error.code == 416 and error.headers.get("Content-Range") == f"bytes */{offset}":
            return  # The partial download was complete already.
        if error.code == 416:
            part.unlink()
        raise
    with response:
        if "text/html" in response.headers.get("Content-Type", ""):
            raise DownloadError("the server sent a web page instead of the file")
        resumed = getattr(response, "status", None) == 206
        if not resumed:
            offset = 0
        total = offset + int(response.headers.get("Content-Length") or 0)
        with part.open("ab" if resumed else "wb") as out:
            copy(response, out, Progress(name, total), offset)
    if part.stat().st_size < total:
        raise DownloadError(f"the connection was lost after {part.stat().st_size:,} of {total:,} bytes")


def copy(stream: IO[bytes], out: IO[bytes], progress: Progress, done: int) -> None:
    """Copy all bytes of `stream` to `out`. `done` is the number of bytes that `out` has already."""
    while chunk := stream.read(CHUNK):
        out.write(chunk)
        done += len(chunk)
        progress.update(done)


def verify(archive: Archive, file: Path, path: Path) -> None:
    """Compare the checksum of `file` with the listed or recorded one. Raise DownloadError if it differs.

    `path` is the final path of the archive. It equals `file` if the archive was not downloaded now. Delete a
    download with a wrong checksum. Record the SHA-256 if there is no checksum to compare with.
    """
    algorithm, expected = archive.checksum
    records = path.with_name("checksums.txt")
    recorded = {name: checksum for checksum, name in (line.split("  ", 1) for line in lines_of(records))}
    actual = digest(file, algorithm)
    if not expected and archive.name not in recorded:
        with records.open("a", encoding="utf-8") as out:
            out.write(f"{actual}  {archive.name}\n")
        report(f"{archive.name}: no checksum is known, so its sha256 {actual} is recorded in {records}")
        return
    expected = expected or recorded[archive.name]
    if actual != expected:
        if file != path:
            file.unlink()
            raise DownloadError(f"its {algorithm} is {actual}, expected {expected}")
        raise DownloadError(f"the {algorithm} of {path} is {actual}, expected {expected}. {advice(path)}")


def advice(path: Path) -> str:
    """Return the remedy for a damaged archive."""
    return f"Delete {path} and run the command again."


def lines_of(file: Path) -> list[str]:
    """Return the lines of a file, or an empty list if it does not exist."""
    return file.read_text("utf-8").splitlines() if file.exists() else []


def digest(file: Path, algorithm: str) -> str:
    """Return the checksum of a file in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


def unpack(archive: Archive, path: Path, folder: Path) -> None:
    """Extract the members of `archive`, a file at `path`, into `folder`. Files appear only when complete.

    Raise DownloadError if the archive is damaged or lacks a member.
    """
    missing = dict(archive.members)
    try:
        with tarfile.open(path) as tar:
            for member in tar:
                target = missing.pop(member.name.removeprefix("./"), None)
                if target is not None and (content := tar.extractfile(member)):
                    write(content, folder / target)
                if not missing:
                    break
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DownloadError(f"{path} cannot be unpacked ({error}). {advice(path)}") from error
    if missing:
        raise DownloadError(
            f"{path} does not contain {', '.join(missing)}. It may be a different archive with that name."
        )
    names = [*archive.members.values()]
    report(f"{archive.name}: {', '.join(names) if len(names) <= 12 else f'{len(names)} files'}")


def write(content: IO[bytes], path: Path) -> None:
    """Write `content` to a temporary file and rename it to `path`, so that `path` is never incomplete."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    with unfinished.open("wb") as out:
        shutil.copyfileobj(content, out, CHUNK)
        out.flush()
        os.fsync(out.fileno())
    unfinished.replace(path)


def main() -> None:
    """Download the archives of all lists."""
    parser = argparse.ArgumentParser(
        description="Download the archives of a recipe and extract the files that it needs."
    )
    parser.add_argument("lists", type=Path, nargs="+", metavar="LIST.toml")
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    options = parser.parse_args()
    try:
        for archive in [archive for path in options.lists for archive in read_list(path)]:
            provide(archive, options.out)
    except (DownloadError, OSError) as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
