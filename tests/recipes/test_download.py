"""The downloads of the recipes, from servers that break off, lack the file, or give another one."""

import hashlib
import io
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

import pytest

# Recipes are no part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recipes import download

TEXT = Random(1).randbytes(300_000)


def packed(**members: bytes) -> bytes:
    """A .tgz with these members in a folder called `inner`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(f"inner/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


ARCHIVE = packed(other=b"unwanted", text=TEXT)


@dataclass
class Server:
    """What a server gives, how it fails, and what it was asked for."""

    files: dict[str, bytes] = field(default_factory=dict)
    breaks_after: list[int] = field(default_factory=list)
    """Bytes after which the next answers end; then they are whole."""

    knows_ranges: bool = True
    kind: str = "application/gzip"
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """Paths and ranges."""

    address: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("Range")
        self.asked.append((handler.path, wanted))
        content = self.files.get(handler.path)
        if content is None:
            handler.send_error(404)
            return
        begin = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.knows_ranges else 0
        if begin >= len(content):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(content)}")
            handler.end_headers()
            return
        handler.send_response(206 if begin else 200)
        handler.send_header("Content-Type", self.kind)
        handler.send_header("Content-Length", str(len(content) - begin))
        handler.end_headers()
        end = begin + self.breaks_after.pop(0) if self.breaks_after else len(content)
        handler.wfile.write(content[begin:end])


@pytest.fixture
def server() -> Iterator[Server]:
    """A server on this machine that has the archive at /a.tgz."""
    served = Server({"/a.tgz": ARCHIVE})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        served.address = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def archive(server: Server, *paths: str, sha256: str = "", md5: str = "") -> download.Archive:
    urls = [server.address + path for path in paths or ["/a.tgz"]]
    return download.Archive("a.tgz", urls, {"inner/text": "text"}, sha256, md5)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("known", [True, False], ids=["checksum known", "checksum unknown"])
def test_a_download_that_breaks_off_goes_on_where_it_stopped(
    server: Server, tmp_path: Path, known: bool
) -> None:
    server.breaks_after = [100_000, 50_000]
    download.provide(archive(server, sha256=sha256(ARCHIVE) if known else ""), tmp_path)
    assert (tmp_path / "text").read_bytes() == TEXT
    assert [wanted for _, wanted in server.asked] == [None, "bytes=100000-", "bytes=150000-"]


def test_a_later_start_goes_on_with_what_an_earlier_one_left(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.breaks_after = [100_000]
    with monkeypatch.context() as once:
        once.setattr(download, "ROUNDS", 1)
        with pytest.raises(download.Failure, match="lost after 100,000 of"):
            download.provide(archive(server), tmp_path)
    assert not (tmp_path / "archives" / "a.tgz").exists()
    download.provide(archive(server), tmp_path)
    assert server.asked[1:] == [("/a.tgz", "bytes=100000-")]
    assert (tmp_path / "text").read_bytes() == TEXT


def test_a_server_that_cannot_go_on_begins_again(server: Server, tmp_path: Path) -> None:
    server.knows_ranges, server.breaks_after = False, [100_000]
    download.provide(archive(server), tmp_path)
    assert (tmp_path / "archives" / "a.tgz").read_bytes() == ARCHIVE


@pytest.mark.parametrize("surplus", [b"", b"?"], ids=["complete", "longer than the file"])
def test_a_part_that_was_not_renamed_in_time_is_no_obstacle(
    server: Server, tmp_path: Path, surplus: bytes
) -> None:
    server.breaks_after = [0]
    with pytest.MonkeyPatch.context() as once, pytest.raises(download.Failure):
        once.setattr(download, "ROUNDS", 1)
        download.provide(archive(server), tmp_path)
    (part,) = (tmp_path / "archives").glob("*.part")
    part.write_bytes(ARCHIVE + surplus)
    download.provide(archive(server, sha256=sha256(ARCHIVE)), tmp_path)
    assert (tmp_path / "text").read_bytes() == TEXT


def test_the_next_address_is_taken_where_one_fails(server: Server, tmp_path: Path) -> None:
    download.provide(archive(server, "/gone.tgz", "/a.tgz"), tmp_path)
    assert [path for path, _ in server.asked] == ["/gone.tgz", "/a.tgz"]
    assert (tmp_path / "text").read_bytes() == TEXT


def test_a_part_of_one_server_is_never_completed_by_another(server: Server, tmp_path: Path) -> None:
    server.files["/other.tgz"] = packed(text=b"another archive")
    server.breaks_after = [50]
    download.provide(archive(server, "/other.tgz", "/a.tgz"), tmp_path)
    assert server.asked == [("/other.tgz", None), ("/a.tgz", None)]
    assert (tmp_path / "text").read_bytes() == TEXT


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_a_file_with_the_wrong_checksum_is_not_kept(server: Server, tmp_path: Path, algorithm: str) -> None:
    server.files["/wrong.tgz"] = packed(text=b"wrong")
    expected = {algorithm: hashlib.new(algorithm, ARCHIVE).hexdigest()}
    download.provide(archive(server, "/wrong.tgz", "/a.tgz", **expected), tmp_path)
    assert (tmp_path / "text").read_bytes() == TEXT
    with pytest.raises(download.Failure, match=f"its {algorithm} is .*, expected {expected[algorithm]}"):
        download.provide(archive(server, "/wrong.tgz", **expected), tmp_path / "second")
    assert not list((tmp_path / "second").rglob("*.*"))


def test_where_no_address_works_each_failure_is_named_and_what_to_do(server: Server, tmp_path: Path) -> None:
    server.files["/page.tgz"], server.kind = b"<html>quota exceeded</html>", "text/html; charset=utf-8"
    with pytest.raises(download.Failure) as failure:
        download.provide(archive(server, "/gone.tgz", "/page.tgz"), tmp_path)
    assert "/gone.tgz: HTTP Error 404" in str(failure.value)
    assert "/page.tgz: the server sent a web page instead of the file" in str(failure.value)
    assert str(failure.value).endswith(f"put it at {tmp_path / 'archives' / 'a.tgz'}.")
    assert len(server.asked) == 2 * download.ROUNDS


def test_a_checksum_that_nobody_knows_is_noted_said_and_held_to(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    download.provide(archive(server), tmp_path)
    assert f"no checksum is known, so its sha256 {sha256(ARCHIVE)} is recorded" in capsys.readouterr().err
    assert (tmp_path / "archives" / "checksums.txt").read_text() == f"{sha256(ARCHIVE)}  a.tgz\n"
    (tmp_path / "archives" / "a.tgz").write_bytes(packed(text=b"changed"))
    (tmp_path / "text").unlink()
    with pytest.raises(download.Failure, match=rf"expected {sha256(ARCHIVE)}\. Delete \S+a\.tgz and run"):
        download.provide(archive(server), tmp_path)
    assert not (tmp_path / "text").exists()


def test_an_archive_put_in_place_by_hand_is_as_good(server: Server, tmp_path: Path) -> None:
    (tmp_path / "archives").mkdir()
    (tmp_path / "archives" / "a.tgz").write_bytes(ARCHIVE)
    download.provide(archive(server, sha256=sha256(ARCHIVE)), tmp_path)
    assert (tmp_path / "text").read_bytes() == TEXT
    assert server.asked == []


def test_what_is_unpacked_needs_its_archive_no_more(server: Server, tmp_path: Path) -> None:
    download.provide(archive(server), tmp_path)
    (tmp_path / "archives" / "a.tgz").unlink()
    download.provide(archive(server), tmp_path)
    assert len(server.asked) == 1


def test_only_what_is_wanted_is_unpacked(server: Server, tmp_path: Path) -> None:
    download.provide(archive(server), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archives", "text"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (packed(other=b"unwanted"), r"a\.tgz does not contain inner/text\. It may be"),
        (ARCHIVE[:100_000], r"a\.tgz cannot be unpacked .*\. Delete \S+a\.tgz and run"),
    ],
    ids=["another", "cut off"],
)
def test_an_archive_that_is_not_what_it_should_be_ends_in_one_line(
    server: Server, tmp_path: Path, content: bytes, message: str
) -> None:
    server.files["/a.tgz"] = content
    with pytest.raises(download.Failure, match=message):
        download.provide(archive(server), tmp_path)
    assert not (tmp_path / "text").exists()


def test_the_command_fetches_what_lists_name_or_fails_in_one_line(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = '[[archive]]\nname = "a.tgz"\nurls = ["{}"]\n[archive.members]\n"inner/text" = "text"\n'
    (tmp_path / "good.toml").write_text(table.format(server.address + "/a.tgz"))
    (tmp_path / "bad.toml").write_text(table.format(server.address + "/gone.tgz"))
    for name in ("good", "bad"):
        command = ["download.py", str(tmp_path / f"{name}.toml"), "--out", str(tmp_path / name)]
        monkeypatch.setattr(sys, "argv", command)
        if name == "good":
            download.main()
            assert (tmp_path / name / "text").read_bytes() == TEXT
        else:
            with pytest.raises(SystemExit, match=r"Error: a\.tgz cannot be downloaded"):
                download.main()
