"""The error for requests that cannot be answered."""


class Refused(Exception):
    """A request cannot be answered. `status` is the HTTP status, `message` the reason for the client."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        """`retry_after` is the number of seconds until the client may try again. None sends no header."""
        super().__init__(message)
        self.status, self.message = status, message
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
