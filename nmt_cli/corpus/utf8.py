"""Decoding of raw bytes under the user's rule for bytes that are not UTF-8."""

from nmt_cli.errors import UserError


def decoded(raw: bytes, rule: str, location: str) -> str | None:
    """Return the line as text. If it is not UTF-8, `rule` decides. "error" raises `UserError`, beginning with
    `location`. "replace" inserts U+FFFD, and "skip" returns None."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        if rule == "error":
            raise UserError(
                f"{location}, byte {error.start + 1:,} (0x{raw[error.start]:02x}) is not UTF-8. Repair it, "
                "or choose --set corpus.invalid_utf8=replace or =skip."
            ) from error
        return None if rule == "skip" else raw.decode(errors="replace")
