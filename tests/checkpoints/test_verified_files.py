"""Tensors and descriptions: read bit by bit as written, or refused with the name of the file. No pickle."""

import json
import os
import re
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt_cli.checkpoints.verified_files import (
    read_description,
    read_tensors,
    tensor_shapes,
    write_description,
    write_tensors,
)
from nmt_cli.errors import UserError
from tests.checks import refusal

PACKAGE = Path(__file__).parents[2] / "nmt_cli"


@pytest.fixture
def described(tmp_path: Path) -> Path:
    """Return a folder with a file of tensors, and a description that covers it."""
    write_tensors(tmp_path / "tensors", {"a": torch.arange(100.0)})
    write_description(tmp_path, "about.json", {"format": 1, "who": "Zoë"}, covers=["tensors"])
    return tmp_path


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_files_of_tensors_have_the_permissions_of_any_new_file(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_tensors(tmp_path / "x", {"t": torch.ones(2)})
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([0.1, -0.0, torch.nan, -torch.inf, 1e-45]),
        torch.tensor(3, dtype=torch.int32),
        torch.zeros(0, 4),
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(6.0, requires_grad=True),
        torch.tensor([1.5], dtype=torch.bfloat16),
    ],
    ids=["odd numbers", "a number", "nothing", "transposed", "with gradient", "bfloat16"],
)
def test_tensors_come_back_bit_by_bit(tmp_path: Path, tensor: torch.Tensor) -> None:
    write_tensors(tmp_path / "x", {"t": tensor, "other": torch.ones(2)})
    back = read_tensors(tmp_path / "x")
    assert back.keys() == {"t", "other"}
    assert (back["t"].shape, back["t"].dtype) == (tensor.shape, tensor.dtype)
    as_written = tensor.detach().contiguous().flatten().view(torch.uint8)
    assert torch.equal(back["t"].flatten().view(torch.uint8), as_written)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x08", b"\xff" * 64, b"\x80\x04}.", b"PK\x03\x04" + bytes(60), b"not tensors at all " * 9],
    ids=["empty", "a byte", "ones", "a pickle", "a zip", "text"],
)
def test_a_file_without_tensors_is_reported_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    assert refusal(read_tensors, tmp_path / "x").startswith(f"{tmp_path / 'x'} is damaged (")


def test_a_lack_of_file_descriptors_is_reported_in_plain_words(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": torch.ones(5)})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    refused = 0
    for read in (read_tensors, tensor_shapes):
        for few in range(6):
            probe = os.open(path, os.O_RDONLY)
            os.close(probe)
            resource.setrlimit(resource.RLIMIT_NOFILE, (probe + few, hard))
            try:
                read(path)
            except (UserError, OSError) as error:
                refused += 1
                assert "Too many open files" in str(error)
                assert str(path) in str(error)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert refused >= 2


def test_a_description_comes_back_with_what_it_covers(described: Path) -> None:
    back = read_description(described, "about.json", 1)
    assert (back["format"], back["who"]) == (1, "Zoë")
    assert list(back["files"]) == ["tensors"]
    text = (described / "about.json").read_text(encoding="utf-8")
    assert "Zoë" in text and text.endswith("\n")
    assert json.loads(text)["files"]["tensors"]["bytes"] == (described / "tensors").stat().st_size


def test_another_format_is_refused(described: Path) -> None:
    message = refusal(read_description, described, "about.json", 2)
    assert "about.json has format 1, but this version reads 2" in message


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("tensors", lambda old: old[:-1]),
        ("tensors", lambda old: old + b"\0"),
        ("tensors", lambda old: old[:-1] + bytes([old[-1] ^ 1])),
        ("tensors", None),
        ("about.json", lambda old: b""),
        ("about.json", lambda old: old[:-9]),
        ("about.json", lambda old: b"\xff" + old),
        ("about.json", lambda old: b"[1]"),
        ("about.json", lambda old: b'{"format": 1}'),
        ("about.json", lambda old: b'{"format": 1, "files": {}}'),
        ("about.json", lambda old: old.replace(b"Zo", b"Jo")),
        ("about.json", None),
    ],
    ids=[
        *("shorter", "longer", "a bit", "missing", "empty", "cut off", "no text", "a list"),
        *("no files", "covers nothing", "a letter", "no description"),
    ],
)
def test_damage_is_reported_in_a_line_that_names_the_file(
    described: Path, name: str, damage: Callable[[bytes], bytes] | None
) -> None:
    path = described / name
    old = path.read_bytes()
    path.unlink()
    if damage:
        path.write_bytes(damage(old))
    problem = "damaged" if damage else "missing"
    assert refusal(read_description, described, "about.json", 1).startswith(f"{path} is {problem}")


def test_a_path_that_is_not_utf8_can_be_stored(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    path = os.fsdecode(b"/data/\xff")
    write_description(tmp_path, "d.json", {"format": 1, "dataset": path}, covers=["a"])
    assert read_description(tmp_path, "d.json", 1)["dataset"] == path


def test_no_pickle_is_ever_written_or_read_from_a_file() -> None:
    pickling = re.compile(
        r"\b(import (pickle|dill|joblib|shelve|marshal)|pickle\.\w+|torch\.(load|save)|allow_pickle=True)\b"
    )
    sources = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    assert len(sources) > 50
    exceptions = {path.name for path, text in sources.items() if pickling.search(text)}
    # `processes` tries in memory if an error can be sent between processes. `pickled` reads tensors alone.
    # `kernels/compiled` keeps the machine code of our kernels, in a folder that no other user can write to.
    assert exceptions == {"processes.py", "pickled.py", "compiled.py"}
    loads = re.findall(r"torch\.load\(.*\)", "".join(sources.values()))
    assert [("weights_only=True" in load) for load in loads] == [True]
