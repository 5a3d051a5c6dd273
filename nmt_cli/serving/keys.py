"""API keys of the server."""

import hmac
from pathlib import Path

from starlette.requests import Request

from nmt_cli.errors import UserError
from nmt_cli.serving.apis.bodies import Fields

SCHEMES = ("bearer", "deepl-auth-key")


class Keys:
    """The accepted API keys. If there are none, every request is accepted."""

    def __init__(self, file: Path | None = None) -> None:
        """Read `file`, which has one key per line. Ignore empty lines and lines that begin with #. Without a
        file, no key is needed. Raise `UserError` if the file has no key."""
        self._keys: list[bytes] = []
        if file:
            lines = (line.strip() for line in file.read_bytes().splitlines())
            self._keys = [line for line in lines if line and not line.startswith(b"#")]
            if not self._keys:
                raise UserError(f"--api-keys {file} contains no key. Write one per line, or omit --api-keys.")

    @property
    def needed(self) -> bool:
        """True if requests need a key."""
        return bool(self._keys)

    def accept(self, request: Request, fields: Fields) -> bool:
        """Return whether the request has an accepted key, or needs none.

        The key is the first of these that is there: the header Authorization or X-API-Key, the field
        `api_key`, and the field `auth_key`. Raise `Refused` if one of the fields is not a text.
        """
        if not self.needed:
            return True
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        header = key.strip() if scheme.lower() in SCHEMES else request.headers.get("x-api-key", "")
        key = header or fields.text("api_key", "") or fields.text("auth_key", "")
        key_bytes = key.encode(errors="surrogatepass")
        # Compare all keys in constant time, so that the duration reveals nothing about them.
        return sum([hmac.compare_digest(key_bytes, accepted) for accepted in self._keys]) > 0
