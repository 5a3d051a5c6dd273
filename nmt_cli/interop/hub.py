"""Download models from the Hugging Face Hub, and publish exports there."""

import hashlib
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt_cli.errors import Notice, UserError

PUSH, MESSAGE = "--push needs a client of the Hub", "Export by nmt"
NAME = re.compile(r"[\w.-]+/[\w.-]+")
COMMIT = re.compile(r"[0-9a-f]{40}")

# An endpoint that accepts and does not answer would take 150 s.
PATIENCE = 15
"""Maximum seconds without an answer to the first request. Later requests are repeated by huggingface_hub."""


def download(name: str, patterns: Sequence[str]) -> Path:
    """Download the files of the model `name` that match `patterns`, and return their folder.

    If the Hub does not answer, return the folder of an earlier download. Raise `UserError` if `name` is not
    OWNER/MODEL, if the download fails or is damaged, or if huggingface_hub is not installed.
    """
    if not NAME.fullmatch(name):
        raise UserError(
            f"{name} does not exist. Name a model file or folder, or a model on the Hub such as owner/model."
        )
    api = _api(f"{name} does not exist here. To download it from the Hub")
    # Before the first request, so that users know what the command waits for.
    warnings.warn(f"Downloading {name} from {api.endpoint} ...", Notice, stacklevel=2)
    with _explained(f"{name} does not exist here, and cannot be downloaded", name, api):
        try:
            there = api.model_info(name, files_metadata=True, timeout=PATIENCE)
        except Exception as error:  # perhaps an earlier download can be used
            try:
                return Path(api.snapshot_download(name, allow_patterns=patterns, local_files_only=True))
            except FileNotFoundError as missing:
                response = getattr(error, "response", None)
                raise (missing if response is not None and response.status_code >= 500 else error) from None
        # huggingface_hub makes it a part of paths.
        if not isinstance(there.sha, str) or not COMMIT.fullmatch(there.sha):
            raise ValueError(f"{api.endpoint} names an invalid commit, {there.sha!s:.60}")
        folder = Path(api.snapshot_download(name, allow_patterns=patterns))
        if folder.name != there.sha:
            raise ValueError("the model was changed during the download. Try again")
        _check_contents(folder, there.siblings)
        return folder


def _check_contents(folder: Path, listed: Sequence[Any]) -> None:
    """Compare the files in `folder` with the hashes that the Hub has `listed`.

    huggingface_hub compares sizes only. Remove a file that differs, and raise `ValueError`.
    """
    for file in listed:
        path = folder / file.rfilename
        if not path.is_file():
            continue
        if file.lfs is not None:
            name, expected, digest = "SHA-256", file.lfs.sha256, hashlib.sha256()
        else:  # a blob of Git, which has no other hash
            name, expected, digest = "hash", file.blob_id, hashlib.sha1(usedforsecurity=False)
            digest.update(f"blob {path.stat().st_size}\0".encode())
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
        if expected is not None and digest.hexdigest() != expected:
            # The path is a link into the cache. Without its content, the next download gets the file again.
            path.resolve().unlink()
            raise ValueError(f"{file.rfilename} is damaged (its {name} is not that of the Hub). Try again")


def check_pushable(name: str) -> None:
    """Check, without sending anything, that an export could be pushed to `name`.

    Raise `UserError` if `name` is not OWNER/NAME, if huggingface_hub is not installed, or if the user has no
    token.
    """
    api = _api(PUSH)
    from huggingface_hub import get_token
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    if not NAME.fullmatch(name):
        raise UserError(f"--push must be OWNER/NAME (got {name}).")
    with _explained(f"--push can't be {name}", name, api):
        validate_repo_id(name)
    if not get_token():
        raise UserError("--push needs a token of the Hub. Log in with hf auth login, or set HF_TOKEN.")


def push(folder: Path, name: str, *, private: bool) -> str:
    """Upload the files in `folder` to the repository `name` in one commit, and return its address.

    A missing repository is created, public or `private`. Raise `UserError` if uploading fails, if the
    repository has other files, or if it is public in spite of `private`. Then there is no commit.
    """
    api, files = _api(PUSH), {str(path.relative_to(folder)) for path in folder.rglob("*")}
    failure = f"{folder} is complete, but not pushed"
    remedy = f" Then push it: hf upload {name} {folder}"
    with _explained(failure, name, api, remedy):
        # None instead of False keeps the default of an organisation, which may be private.
        api.create_repo(name, private=private or None, exist_ok=True)
        there = api.model_info(name)
    address = f"{api.endpoint}/{name}"
    # The Hub adds .gitattributes to a new repository.
    others = {file.rfilename for file in there.siblings} - files - {".gitattributes"}
    if others:
        raise UserError(
            f"{failure}: {address} has other files, such as {min(others)}. Name a new repository."
        )
    if private and not there.private:
        raise UserError(f"{failure}: {address} is public. Name a new repository, or omit --private.")
    with _explained(failure, name, api, remedy):
        # With `parent_commit`, the upload fails if somebody else has added files since the check.
        api.upload_folder(repo_id=name, folder_path=folder, commit_message=MESSAGE, parent_commit=there.sha)
    return address


def _api(purpose: str) -> Any:
    """Return a client of the Hub. Without huggingface_hub, raise `UserError` that begins with `purpose`."""
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise UserError(f"{purpose}: pip install huggingface_hub.") from error
    return HfApi()


@contextmanager
def _explained(failure: str, name: str, api: Any, remedy: str = "") -> Iterator[None]:
    """Turn an error in the block into a `UserError`: `failure`, the cause and `remedy`. `name` is that of the
    repository."""
    try:
        yield
    except Exception as error:  # the library's HTTP client raises its own errors
        raise UserError(f"{failure}: {_cause(error, name, api.endpoint)}{remedy}") from error


def _cause(error: Exception, name: str, endpoint: str) -> str:
    """Return sentences about an error of the Hub at `endpoint` for the repository `name`, with a remedy."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    if isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # the error only names the file
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if isinstance(error, GatedRepoError):
        return f"it is gated. Accept its conditions at {endpoint}/{name}, then log in: hf auth login."
    if isinstance(error, RepositoryNotFoundError):
        return f"there is no {endpoint}/{name}. Check the name. If it is private, log in: hf auth login."
    if status == 401:
        return "the Hub does not accept the token. Log in again: hf auth login."
    if status == 403:
        return f"the token has no permission for {name}. Change it at {endpoint}/settings/tokens."
    of_network = type(error).__module__.startswith("httpx")  # httpx2 in newer versions
    if of_network or isinstance(error, FileNotFoundError):  # neither on the Hub nor in the cache
        return f"{endpoint} cannot be reached. Check the network."
    return " ".join([line for line in str(error).splitlines() if line][:2]).rstrip(".:") + "."
