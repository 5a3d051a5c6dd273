"""Who may use the server: those who know one of the keys in a file."""

import hmac
from pathlib import Path

from starlette.requests import Request

from nmt_cli.errors import UserError
from nmt_cli.serving.apis.bodies import Fields

SCHEMES = ("bearer", "deepl-auth-key")


class Keys:
    """The keys that are good; without a file, nobody needs one."""

    def __init__(self, file: Path | None = None) -> None:
        """`file` has a key a line; empty lines and those that begin with # are none."""
        self._known: list[bytes] = []
        if file:
            lines = (line.strip() for line in file.read_bytes().splitlines())
            self._known = [line for line in lines if line and not line.startswith(b"#")]
            if not self._known:
                raise UserError(f"{file} holds no key; write one a line, or leave --api-keys out.")

    @property
    def needed(self) -> bool:
        """Whether one must know a key."""
        return bool(self._known)

    def good(self, request: Request, fields: Fields) -> bool:
        """Whether the request brings a key that is known, in a header or as `api_key`."""
        if not self.needed:
            return True
        given = _of_headers(request) or fields.text("api_key", "") or fields.text("auth_key", "")
        tried = given.encode(errors="surrogatepass")
        # All are compared, each in a time that tells nothing of how much of it was right.
        return sum([hmac.compare_digest(tried, key) for key in self._known]) > 0


def _of_headers(request: Request) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() in SCHEMES else request.headers.get("x-api-key", "")
