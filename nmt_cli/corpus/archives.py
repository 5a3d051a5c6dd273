"""Moses archives, as OPUS distributes them: a .zip with one file per language, read without unpacking."""

import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from nmt_cli.corpus.files import blocks_of, count_lines_of, equal_count, explained
from nmt_cli.errors import UserError
from nmt_cli.language import fits
from nmt_cli.runtime.zips import opened, refuse_hostile

SUFFIX = ".zip"


def count(path: Path, languages: tuple[str, str]) -> int:
    """Return the number of lines, equal in the files of both `languages`. Raise `UserError` if the numbers
    differ or are 0. Also raise it for damage, and for a language with no file or several files."""
    names, counts = [], []
    with explained(path), opened(path) as archive:
        for info in [_member(path, archive, language) for language in languages]:
            names.append(f"{path}/{info.filename}")
            with archive.open(info) as stream:
                counts.append(count_lines_of(stream, names[-1]))
    return equal_count(names, counts)


def blocks(path: Path, languages: tuple[str, str], size: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield (source lines, target lines) in lists of `size`. The last lists may be shorter. Raise `UserError`
    for damage or fewer lists on one side. Only `count` compares the exact numbers of lines."""
    with explained(path), opened(path) as archive:
        source, target = (_member(path, archive, language) for language in languages)
        with archive.open(source) as sources, archive.open(target) as targets:
            yield from zip(
                blocks_of(sources, f"{path}/{source.filename}", size),
                blocks_of(targets, f"{path}/{target.filename}", size),
                strict=True,
            )


def _member(path: Path, archive: zipfile.ZipFile, language: str) -> zipfile.ZipInfo:
    """Return the only file that ends in .`language`. If there is none, accept another code of the language,
    such as .deu. Raise `UserError` for no file, several files, or an unsafe file."""
    endings = [(info, PurePosixPath(info.filename).suffix[1:]) for info in archive.infolist()]
    members = [info for info, ending in endings if ending == language] or [
        info for info, ending in endings if ending and fits(ending, language)
    ]
    if len(members) != 1:
        listed = ", ".join(info.filename for info in members[:5]) or "none"
        raise UserError(
            f"{path} should hold one file that ends in .{language}, but has {listed}. Unpack it, and give "
            "the files as SOURCE:TARGET."
        )
    refuse_hostile(path, members)
    return members[0]
