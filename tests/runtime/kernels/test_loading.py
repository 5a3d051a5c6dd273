"""Kernels are optional, and their compiled code is never outdated or damaged."""

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import nmt_cli
from nmt_cli.errors import Caution
from nmt_cli.runtime.kernels import loading as kernels
from nmt_cli.runtime.kernels.loading import MAX_FOLDERS, PREFIX, KernelFiles, compiled_kernels

LOSS = """
import numpy as np
from nmt_cli.runtime.kernels.loading import compiled_kernels
logits, losses = np.eye(2, dtype=np.float32), np.zeros((2, 2), np.float32)
zero, one = np.float32(0), np.float32(1)
compiled_kernels("loss.cpu_row_losses").rows(logits, np.zeros(2, np.int64), losses, zero, one, False, 0, 2)
print([f'{loss:.2f}' for loss in losses[0]])
"""


def _python(
    script: str, package: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a script with a package and only the package's own cache."""
    environment = (
        os.environ
        | {"PYTHONPATH": str(package.parent), "XDG_CACHE_HOME": "/dev/null", "PYTHONWARNINGS": ""}
        | variables
    )
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=environment, cwd=package.parent, capture_output=True, text=True)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the package without compiled code. No cache of the user is used."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    origin = Path(nmt_cli.__file__).parent
    return Path(shutil.copytree(origin, tmp_path / "nmt_cli", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.mark.slow
def test_compiled_code_depends_on_imported_sources_and_damaged_files_are_replaced(package: Path) -> None:
    first = _python(LOSS, package)
    assert first.stdout == "['0.31', '1.31']\n", first.stderr
    assert first.stderr.count("Compiling CPU kernels") == 1
    files = sorted((package / "runtime" / "kernels" / "__pycache__").glob(f"{PREFIX}*/nmt_cli.*"))
    for number, file in enumerate(files):
        content = file.read_bytes()
        damages = b"", content[:-1], b"garbage", content[:-1] + bytes([content[-1] ^ 1])
        file.write_bytes(damages[number % len(damages)])
    again = _python(LOSS, package)
    assert again.stdout == first.stdout
    assert _python(LOSS, package).stderr == ""
    source = package / "runtime" / "kernels" / "compiled.py"
    text = source.read_text()
    source.write_text(
        text.replace("return total * _two_to_the", "return np.float32(3) * total * _two_to_the")
    )
    assert source.read_text() != text
    assert _python(LOSS, package).stdout == "['1.41', '2.41']\n"


@pytest.mark.parametrize("quiet", [False, True])
def test_compiling_is_announced_once_unless_quiet(quiet: bool) -> None:
    script = """if True:
        import sys
        from nmt_cli.cli.main import main
        from nmt_cli.runtime.kernels.loading import announce_compiling
        try:
            main()
        except SystemExit:
            announce_compiling()
            announce_compiling()
    """
    package = Path(nmt_cli.__file__).parent
    done = _python(script, package, "info", "missing", *["--quiet"] * quiet)
    assert done.stderr.count("Compiling CPU kernels") == (not quiet)
    assert "Notice" not in done.stderr


@pytest.mark.slow
def test_an_interpreted_numba_is_not_used(package: Path) -> None:
    script = (
        "from nmt_cli.runtime.kernels.loading import compiled_kernels; "
        "print(compiled_kernels('loss.cpu_row_losses'))"
    )
    done = _python(script, package, NUMBA_DISABLE_JIT="1")
    assert (done.stdout, done.stderr) == ("None\n", "")


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 100])
def test_a_damaged_file_is_not_read(damage: bytes, tmp_path: Path) -> None:
    files = KernelFiles(str(tmp_path), "here")
    assert files.read("a") is None
    files.write("a", b"code")
    assert files.read("a") == b"code"
    (file,) = tmp_path.glob("*/a")
    file.write_bytes(damage)
    assert files.read("a") is None


def test_a_full_disk_keeps_the_older_code_and_is_no_error(
    tmp_path: Path, full_disk: Callable[[int], AbstractContextManager[None]]
) -> None:
    files = KernelFiles(str(tmp_path), "here")
    files.write("a", b"code")
    with full_disk(1000):
        files.write("a", bytes(100_000))
        files.write("b", bytes(100_000))
    assert files.read("a") == b"code" and files.read("b") is None
    assert [path.name for path in tmp_path.glob("*/*")] == ["a"]


def test_the_environment_and_all_sources_name_the_folder(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "PACKAGE", package)
    chosen = package / "chosen"
    sources = [path for pattern in kernels.SOURCES for path in package.glob(pattern)]
    KernelFiles(str(chosen), "processor")
    KernelFiles(str(chosen), "processor")
    assert len(sources) > 5 and len(list(chosen.iterdir())) == 1
    KernelFiles(str(chosen), "another")
    for source in (sources[0], sources[-1]):
        source.write_text(source.read_text() + "\n")
        KernelFiles(str(chosen), "processor")
    assert len(list(chosen.iterdir())) == 4
    for number in range(2 * MAX_FOLDERS):
        KernelFiles(str(chosen), number)
    left = list(chosen.iterdir())
    assert len(left) == MAX_FOLDERS
    KernelFiles(str(chosen), 2 * MAX_FOLDERS - 1)
    assert sorted(chosen.iterdir()) == sorted(left)


OTHERS = r"/nmt-kernels-\w+ can be changed by other users: remove it"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda folder: folder.chmod(0o775), OTHERS),
        (lambda folder: folder.chmod(0o757), OTHERS),
        (
            lambda folder: folder.symlink_to(folder.rename(folder.with_name("target"))),
            "is not a folder: remove",
        ),
    ],
    ids=["group", "all users", "link"],
)
def test_a_folder_that_other_users_can_change_is_not_used(
    package: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], problem: str
) -> None:
    monkeypatch.setattr(kernels, "PACKAGE", package)
    chosen = package / "chosen"
    KernelFiles(str(chosen), "environment").write("a", b"code")
    (folder,) = chosen.iterdir()
    assert KernelFiles(str(chosen), "environment").read("a") == b"code"
    change(folder)
    assert KernelFiles(str(chosen), "environment").read("a") is None
    own_cache = package / "runtime" / "kernels" / "__pycache__"
    shutil.rmtree(own_cache)
    own_cache.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    with pytest.raises(OSError, match=problem):
        KernelFiles(str(chosen), "environment")


def test_a_folder_of_another_user_is_not_used(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "PACKAGE", package)
    status = os.stat_result((0o40755, 0, 0, 1, os.getuid() + 1, 0, 0, 0, 0, 0))
    monkeypatch.setattr(Path, "lstat", lambda folder: status)
    with pytest.raises(OSError, match="belongs to another user: remove it"):
        KernelFiles(str(package / "chosen"), "environment")


def test_a_folder_that_can_only_be_read_is_used(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "PACKAGE", package)
    KernelFiles("", "here").write("a", b"installed")

    def fails(path: Path, *_: object) -> None:
        raise PermissionError(path)

    def opened(path: Path, mode: str = "r", *rest: Any) -> Any:
        return fails(path) if "w" in mode else io.open(path, mode, *rest)  # noqa: UP020

    monkeypatch.setattr(Path, "open", opened)
    monkeypatch.setattr(Path, "mkdir", fails)
    monkeypatch.setattr(os, "utime", fails)
    files = KernelFiles(str(package / "chosen"), "here")
    files.write("b", b"left out")
    assert (files.read("a"), files.read("b")) == (b"installed", None)


def test_the_error_names_the_reason_and_the_remedy_for_each_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "PACKAGE", Path("/dev/null"))
    monkeypatch.setenv("XDG_CACHE_HOME", "~no-such-user/.cache")
    unusable = r"/nmt-kernels-\w+ can't be created \(Not a directory\): allow writing to "
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="can't be stored") as caught:
        KernelFiles(str(tmp_path / "file"), "environment")
    message = str(caught.value)
    for folder in (tmp_path / "file", Path("/dev/null/runtime/kernels/__pycache__")):
        assert re.search(f"{folder}{unusable}{folder}", message)
    assert message.endswith(". Set NUMBA_CACHE_DIR to another folder.")
    assert "\n" not in message


def test_kernels_that_do_not_compile_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> None:
        raise AttributeError(f"{name} is broken\nand says more")

    monkeypatch.setattr(kernels, "import_module", fails)
    with pytest.warns(Caution, match=r"slower \(AttributeError: nmt_cli.loss.cpu_row_losses is broken\)$"):
        assert compiled_kernels.__wrapped__("loss.cpu_row_losses") is None


@pytest.mark.parametrize("module", ["engine.kernels.steps", "loss.cpu_row_losses"])
def test_kernels_of_a_module_are_imported_or_none(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    actual = compiled_kernels.__wrapped__(module)
    assert actual is not None and actual.__name__ == f"nmt_cli.{module}"
    monkeypatch.setitem(sys.modules, f"nmt_cli.{module}", None)
    assert compiled_kernels.__wrapped__(module) is None
