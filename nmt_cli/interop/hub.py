"""Download models from the Hugging Face Hub, and publish exports there."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt_cli.errors import UserError

NAME = re.compile(r"[\w.-]+/[\w.-]+")


def download(name: str, patterns: Sequence[str]) -> Path:
    """Download the files of the model `name` that match `patterns`, and return their folder. Raise
    `UserError` if `name` is not OWNER/MODEL, the download fails, or huggingface_hub is not installed."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"{name} does not exist. Name a model file or folder, or a model on the Hub such as owner/model."
        )
    api = _api(f"{name} does not exist here. To download it from the Hub")
    with _explained(f"{name} does not exist here, and cannot be downloaded", name, api):
        return Path(api.snapshot_download(name, allow_patterns=patterns))


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
    except Exception as error:  # the library's HTTP client, which changes, has errors of its own
        raise UserError(f"{failure}: {_cause(error, name, api.endpoint)}{remedy}") from error


def _cause(error: Exception, name: str, endpoint: str) -> str:
    """Return sentences about an error of the Hub at `endpoint` for the repository `name`, with a remedy."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if isinstance(error, GatedRepoError):
        return f"it is gated. Accept its conditions at {endpoint}/{name}, then log in: hf auth login."
    if isinstance(error, RepositoryNotFoundError):
        return f"there is no {endpoint}/{name}. Check the name. If it is private, log in: hf auth login."
    if status == 401:
        return "the Hub does not accept the token. Log in again: hf auth login."
    if status == 403:
        return (
            f"the token may not write to {name}. Name a repository of your own, or use a token with write "
            f"access: {endpoint}/settings/tokens."
        )
    known = isinstance(error, OSError | ValueError | RuntimeError)
    if isinstance(error, FileNotFoundError) or not known:  # or an error of the HTTP client
        return f"{endpoint} cannot be reached. Check the network."
    return " ".join([line for line in str(error).splitlines() if line][:2]) + "."
