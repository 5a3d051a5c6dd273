"""What a request that is not answered with a translation is told."""


class Refused(Exception):
    """A request can't be answered: an HTTP status, and one sentence that says why."""

    def __init__(self, status: int, told: str, retry_after: int | None = None) -> None:
        """`retry_after` is in how many seconds it may be tried again."""
        super().__init__(told)
        self.status, self.told = status, told
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
