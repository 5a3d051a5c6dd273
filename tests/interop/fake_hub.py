"""A Hugging Face Hub on this machine: the HTTP API that huggingface_hub calls, repositories in memory."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import ModelCard, constants

TOKENS = {"writer": "owner", "reader": ""}
"""The user that may write with each token. Every token may read."""

LARGE = 1 << 14
"""Files of at least this size are uploaded by the protocol of LFS."""

NAME = r"([\w.-]+/[\w.-]+?)"
KEYS = ("header", "file", "lfsFile")
LICENCES = ("apache-2.0", "cc-by-4.0", "mit", "other")

Answer = tuple[int, Any, Mapping[str, str]]


@dataclass
class Repository:
    """A repository with its files. Each commit adds to `messages`."""

    files: dict[str, bytes] = field(default_factory=dict)
    private: bool = False
    gated: bool = False
    messages: list[str] = field(default_factory=list)

    @property
    def sha(self) -> str:
        return hashlib.sha1(json.dumps([*self.messages, *self.files]).encode()).hexdigest()


@dataclass
class FakeHub:
    """The repositories by name, the requests so far, and what the next requests answer."""

    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)
    """Contents in LFS by SHA-256."""

    requests: list[str] = field(default_factory=list)
    failing: dict[str, Answer] = field(default_factory=dict)
    """Answers by a part of the request line, such as "PUT /lfs"."""

    def answer(self, line: str, token: str, body: bytes) -> Answer:
        """Return status, content and headers for a request such as "GET /api/models/owner/name"."""
        self.requests.append(line)
        for part, answer in self.failing.items():
            if part in line:
                return answer
        if token and token not in TOKENS:
            return 401, {}, {"X-Error-Message": "Invalid credentials in Authorization header"}
        for pattern, handler in self._routes().items():
            if match := re.fullmatch(pattern, line):
                return handler(*match.groups(), token=token, body=body)
        return 404, {}, {}

    def _routes(self) -> Mapping[str, Callable[..., Answer]]:
        return {
            r"PUT /lfs/(\w+)": self.store,
            r"POST /api/validate-yaml": self._validate,
            r"POST /api/repos/create": self._create,
            rf"GET /api/models/{NAME}(?:/revision/main)?": self._describe,
            rf"GET /api/models/{NAME}/tree/\w+": self._list,
            rf"(?:GET|HEAD) /{NAME}/resolve/\w+/(.+)": self._resolve,
            rf"POST /api/models/{NAME}/preupload/main": self._preupload,
            rf"POST /{NAME}\.git/info/lfs/objects/batch": self._batch,
            rf"POST /api/models/{NAME}/commit/main": self._commit,
        }

    def _refusal(self, name: str, token: str, *, write: bool = False) -> Answer | None:
        """Return the answer to a user who may not read the repository or, with `write`, not write."""
        repository = self.repositories.get(name)
        if repository is None or (repository.private and not token):
            return (404 if token else 401), {}, {"X-Error-Code": "RepoNotFound"}
        if write and TOKENS.get(token) != name.split("/")[0]:
            return 403, {}, {"X-Error-Message": "you may not write to this repository"}
        return None

    def _describe(self, name: str, token: str, body: bytes) -> Answer:
        if refusal := self._refusal(name, token):
            return refusal
        repository = self.repositories[name]
        siblings = [_sibling(path, content) for path, content in repository.files.items()]
        described = {"id": name, "sha": repository.sha, "private": repository.private, "siblings": siblings}
        return 200, described, {}

    def _list(self, name: str, token: str, body: bytes) -> Answer:
        return 200, [_entry(path, content) for path, content in self.repositories[name].files.items()], {}

    def _resolve(self, name: str, path: str, token: str, body: bytes) -> Answer:
        repository = self.repositories[name]
        if repository.gated and token != "reader":
            return 403, {}, {"X-Error-Code": "GatedRepo"}
        content = repository.files[unquote(path)]
        etag = hashlib.sha256(content).hexdigest() if len(content) >= LARGE else _oid(content)
        return 200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": repository.sha}

    def _preupload(self, name: str, token: str, body: bytes) -> Answer:
        if refusal := self._refusal(name, token, write=True):
            return refusal
        modes = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["size"] >= LARGE else "regular",
                "shouldIgnore": False,
            }
            for file in json.loads(body)["files"]
        ]
        return 200, {"files": modes}, {}

    def _batch(self, name: str, token: str, body: bytes) -> Answer:
        if refusal := self._refusal(name, token, write=True):
            return refusal
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.address}/lfs/{one['oid']}"}}}
            for one in json.loads(body)["objects"]
        ]
        return 200, {"transfer": "basic", "objects": objects}, {}

    def store(self, sha256: str, token: str, body: bytes) -> Answer:
        if sha256 != hashlib.sha256(body).hexdigest():
            return 400, {}, {}
        self.stored[sha256] = body
        return 200, {}, {}

    def _commit(self, name: str, token: str, body: bytes) -> Answer:
        """Add the files of a commit, and refuse a commit on another parent."""
        if refusal := self._refusal(name, token, write=True):
            return refusal
        entries = [json.loads(line) for line in body.splitlines()]
        values = {key: [entry["value"] for entry in entries if entry["key"] == key] for key in KEYS}
        assert sum(map(len, values.values())) == len(entries)
        repository, (header,) = self.repositories[name], values["header"]
        if header.get("parentCommit", repository.sha) != repository.sha:
            return 412, {"error": "the branch has moved"}, {}
        repository.files |= {file["path"]: base64.b64decode(file["content"]) for file in values["file"]}
        repository.files |= {file["path"]: self.stored[file["oid"]] for file in values["lfsFile"]}
        repository.messages.append(header["summary"])
        return 200, {"commitUrl": f"{self.address}/{name}/commit/1", "commitOid": repository.sha}, {}

    def _create(self, token: str, body: bytes) -> Answer:
        wanted = json.loads(body)
        name = f"{wanted['organization']}/{wanted['name']}"
        if TOKENS.get(token) != wanted["organization"]:
            return 403, {}, {"X-Error-Message": "you may not create this repository"}
        if name in self.repositories:
            return 409, {"error": "You already created this model repo", "url": f"{self.address}/{name}"}, {}
        self.repositories[name] = Repository({".gitattributes": b""}, wanted.get("visibility") == "private")
        return 200, {"url": f"{self.address}/{name}"}, {}

    def _validate(self, token: str, body: bytes) -> Answer:
        """Refuse what the Hub refuses: a language or licence that it does not know."""
        card: Any = ModelCard(json.loads(body)["content"])
        data = card.data.to_dict()
        errors = [f'"language" has {lang}' for lang in data.get("language", []) if not 2 <= len(lang) <= 3]
        if data.get("license", "mit") not in LICENCES:
            errors.append('"license" must be one of [apache-2.0, mit, ...]')
        return (400 if errors else 200), {"errors": [{"message": error} for error in errors]}, {}


def _oid(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def _entry(path: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": _oid(content)}
    if len(content) >= LARGE:
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), **_pointer(content)}
    return entry


def _pointer(content: bytes) -> dict[str, int]:
    return {"size": len(content), "pointerSize": 130}


def _sibling(path: str, content: bytes) -> dict[str, Any]:
    """Describe a file as `_entry`, in the form that the description of a repository has."""
    sibling: dict[str, Any] = {"rfilename": path, "size": len(content), "blobId": _oid(content)}
    if len(content) >= LARGE:
        sibling["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), **_pointer(content)}
    return sibling


@contextmanager
def served() -> Iterator[FakeHub]:
    """Yield a Hub that serves requests until the block ends."""
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            body = self._chunks() if self.headers.get("Transfer-Encoding") else self._sized()
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            status, content, more = hub.answer(f"{self.command} {urlsplit(self.path).path}", token, body)
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {**more, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def _sized(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def _chunks(self) -> bytes:
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        do_GET = do_HEAD = do_POST = do_PUT = _handle

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def used(address: str, cache: Path, token: str = "") -> Iterator[None]:
    """In the block, let huggingface_hub use the Hub at `address`, an empty cache and `token`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "ENDPOINT", address)
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr(constants, "HF_HUB_CACHE", str(cache))
        patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        patch.setattr(constants, "HF_TOKEN_PATH", str(cache / "no token"))
        patch.setenv("HF_TOKEN", token)
        yield
