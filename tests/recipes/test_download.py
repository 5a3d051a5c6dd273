"""Downloads of recipes from servers that lose connections, lack the file, or send a different one."""

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

from recipes import download
from tests.recipes.conftest import add_member

TEXT = Random(1).randbytes(300_000)


def packed(**members: bytes) -> bytes:
    """Return a .tgz archive that has each member in the folder `inner`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in members.items():
            add_member(tar, f"inner/{name}", content)
    return out.getvalue()


ARCHIVE = packed(other=b"unwanted", text=TEXT)


@dataclass
class Server:
    """The files and faults of an HTTP server, and the requests that it received."""

    files: dict[str, bytes] = field(default_factory=dict)
    lost_after: list[int] = field(default_factory=list)
    """Bytes after which the connections of the next responses are lost. Later responses are complete."""

    can_resume: bool = True
    kind: str = "application/gzip"
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """The path and range of each request."""

    address: str = ""

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        """Record a GET request and send the response."""
        range_header = handler.headers.get("Range")
        self.requests.append((handler.path, range_header))
        content = self.files.get(handler.path)
        if content is None:
            handler.send_error(404)
            return
        begin = int(range_header[len("bytes=") : -1]) if range_header and self.can_resume else 0
        if begin >= len(content):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(content)}")
            handler.end_headers()
            return
        handler.send_response(206 if begin else 200)
        handler.send_header("Content-Type", self.kind)
        handler.send_header("Content-Length", str(len(content) - begin))
        handler.end_headers()
        end = begin + self.lost_after.pop(0) if self.lost_after else len(content)
        handler.wfile.write(content[begin:end])


@pytest.fixture
def server() -> Iterator[Server]:
    """Start a server on this machine that has the archive at /a.tgz."""
    served = Server({"/a.tgz": ARCHIVE})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.respond(self)

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


@pytest.mark.parametrize("checksum", [sha256(ARCHIVE), ""], ids=["checksum known", "checksum unknown"])
def test_an_interrupted_download_resumes(server: Server, tmp_path: Path, checksum: str) -> None:
    server.lost_after = [100_000, 50_000]
    download.provide(archive(server, sha256=checksum), tmp_path)
    assert (tmp_path / "text").read_bytes() == TEXT
    assert [range_header for _, range_header in server.requests] == [None, "bytes=100000-", "bytes=150000-"]


def test_a_later_run_resumes_the_download_of_an_earlier_run(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.lost_after = [100_000]
    with monkeypatch.context() as once:
        once.setattr(download, "ATTEMPTS", 1)
        with pytest.raises(download.DownloadError, match="lost after 100,000 of"):
            download.provide(archive(server), tmp_path)
    assert not (tmp_path / "archives" / "a.tgz").exists()
    download.provide(archive(server), tmp_path)
    assert server.requests[1:] == [("/a.tgz", "bytes=100000-")]
    assert (tmp_path / "text").read_bytes() == TEXT


def test_a_download_starts_over_if_the_server_cannot_resume(server: Server, tmp_path: Path) -> None:
    server.can_resume, server.lost_after = False, [100_000]
    download.provide(archive(server), tmp_path)
    assert (tmp_path / "archives" / "a.tgz").read_bytes() == ARCHIVE


@pytest.mark.parametrize("additional", [b"", b"?"], ids=["complete", "longer than the file"])
def test_a_partial_download_that_was_not_renamed_is_used_or_replaced(
    server: Server, tmp_path: Path, additional: bytes
) -> None:
    server.lost_after = [0]
    with pytest.MonkeyPatch.context() as once, pytest.raises(download.DownloadError):
        once.setattr(download, "ATTEMPTS", 1)
        download.provide(archive(server), tmp_path)
    (part,) = (tmp_path / "archives").glob("*.part")
    part.write_bytes(ARCHIVE + additional)
    download.provide(archive(server, sha256=sha256(ARCHIVE)), tmp_path)
    assert (tmp_path / "text").read_bytes() == TEXT


def test_the_next_address_is_tried_if_one_fails(server: Server, tmp_path: Path) -> None:
    download.provide(archive(server, "/missing.tgz", "/a.tgz"), tmp_path)
    assert [path for path, _ in server.requests] == ["/missing.tgz", "/a.tgz"]
    assert (tmp_path / "text").read_bytes() == TEXT


def test_a_partial_download_is_resumed_only_from_its_own_address(server: Server, tmp_path: Path) -> None:
    server.files["/other.tgz"] = packed(text=b"another archive")
    server.lost_after = [50]
    download.provide(archive(server, "/other.tgz", "/a.tgz"), tmp_path)
    assert server.requests == [("/other.tgz", None), ("/a.tgz", None)]
    assert (tmp_path / "text").read_bytes() == TEXT


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_a_download_with_a_wrong_checksum_is_deleted(server: Server, tmp_path: Path, algorithm: str) -> None:
    server.files["/wrong.tgz"] = packed(text=b"wrong")
    expected = {algorithm: hashlib.new(algorithm, ARCHIVE).hexdigest()}
    download.provide(archive(server, "/wrong.tgz", "/a.tgz", **expected), tmp_path)
    assert (tmp_path / "text").read_bytes() == TEXT
    with pytest.raises(
        download.DownloadError, match=f"its {algorithm} is .*, expected {expected[algorithm]}"
    ):
        download.provide(archive(server, "/wrong.tgz", **expected), tmp_path / "second")
    assert not list((tmp_path / "second").rglob("*.*"))


def test_the_error_names_the_failure_of_each_address_and_the_remedy(server: Server, tmp_path: Path) -> None:
    server.files["/page.tgz"], server.kind = b"<html>quota exceeded</html>", "text/html; charset=utf-8"
    with pytest.raises(download.DownloadError) as failure:
        download.provide(archive(server, "/missing.tgz", "/page.tgz"), tmp_path)
    assert "/missing.tgz: HTTP Error 404" in str(failure.value)
    assert "/page.tgz: the server sent a web page instead of the file" in str(failure.value)
    assert str(failure.value).endswith(f"put it at {tmp_path / 'archives' / 'a.tgz'}.")
    assert len(server.requests) == 2 * download.ATTEMPTS


def test_the_checksum_of_a_first_download_is_printed_recorded_and_required_later(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    download.provide(archive(server), tmp_path)
    assert f"no checksum is known, so its sha256 {sha256(ARCHIVE)} is recorded" in capsys.readouterr().err
    assert (tmp_path / "archives" / "checksums.txt").read_text() == f"{sha256(ARCHIVE)}  a.tgz\n"
    (tmp_path / "archives" / "a.tgz").write_bytes(packed(text=b"changed"))
    (tmp_path / "text").unlink()
    with pytest.raises(
        download.DownloadError, match=rf"expected {sha256(ARCHIVE)}\. Delete \S+a\.tgz and run"
    ):
        download.provide(archive(server), tmp_path)
    assert not (tmp_path / "text").exists()


def test_an_archive_from_the_user_is_used_like_a_download(server: Server, tmp_path: Path) -> None:
    (tmp_path / "archives").mkdir()
    (tmp_path / "archives" / "a.tgz").write_bytes(ARCHIVE)
    download.provide(archive(server, sha256=sha256(ARCHIVE)), tmp_path)
    assert (tmp_path / "text").read_bytes() == TEXT
    assert server.requests == []


def test_only_listed_members_are_extracted_and_they_need_no_archive_later(
    server: Server, tmp_path: Path
) -> None:
    download.provide(archive(server), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archives", "text"]
    (tmp_path / "archives" / "a.tgz").unlink()
    download.provide(archive(server), tmp_path)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (packed(other=b"unwanted"), r"a\.tgz does not contain inner/text\. It may be"),
        (ARCHIVE[:100_000], r"a\.tgz cannot be unpacked .*\. Delete \S+a\.tgz and run"),
    ],
    ids=["another", "cut off"],
)
def test_a_damaged_or_different_archive_is_an_error(
    server: Server, tmp_path: Path, content: bytes, message: str
) -> None:
    server.files["/a.tgz"] = content
    with pytest.raises(download.DownloadError, match=message):
        download.provide(archive(server), tmp_path)
    assert not (tmp_path / "text").exists()


def test_the_command_downloads_the_listed_archives_or_ends_with_an_error(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = '[[archive]]\nname = "a.tgz"\nurls = ["{}"]\n[archive.members]\n"inner/text" = "text"\n'
    (tmp_path / "good.toml").write_text(table.format(server.address + "/a.tgz"))
    (tmp_path / "bad.toml").write_text(table.format(server.address + "/missing.tgz"))
    for name in ("good", "bad"):
        command = ["download.py", str(tmp_path / f"{name}.toml"), "--out", str(tmp_path / name)]
        monkeypatch.setattr(sys, "argv", command)
        if name == "good":
            download.main()
            assert (tmp_path / name / "text").read_bytes() == TEXT
        else:
            with pytest.raises(SystemExit, match=r"Error: a\.tgz cannot be downloaded"):
                download.main()
