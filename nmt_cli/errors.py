"""Errors that a user can fix, exit codes after signals, and text that is safe to print."""

import json
import re
import signal
from collections.abc import Mapping

EXIT_CODES: Mapping[int, int] = {
    signal.SIGINT: 130,
    signal.SIGTERM: 143,
    signal.SIGUSR1: 143,
    signal.SIGHUP: 129,
}
"""The exit code of a command after each signal. Slurm sends SIGUSR1 before the time limit, and SIGTERM at the
limit."""


CONTROLS = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that a terminal obeys instead of showing them: controls, ends of lines, and changes of
direction."""

SURROGATES = range(0xD800, 0xE000)
"""The characters by which Python replaces the bytes of a file's name that are not UTF-8."""

ESCAPES = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in (*CONTROLS, *SURROGATES)}
JSON_ESCAPES = {code: f"\\u{code:04x}" for code in ESCAPES if code >= 0x20}  # `json` escapes the others


def printable(text: object) -> str:
    """Return `text` as one line that is safe to print. Surrogates, and characters that a terminal would obey,
    are escaped."""
    return str(text).translate(ESCAPES)


def printable_json(content: object, indent: int | None = None) -> str:
    """Return `content` as JSON that is safe to print. Surrogates, and characters that a terminal would obey,
    are escaped."""
    return json.dumps(content, ensure_ascii=False, indent=indent).translate(JSON_ESCAPES)


LONGEST_MESSAGE, LONGEST_VALUE = 2000, 200
"""The maximum number of characters of an error message, and of a value in it."""

IN_PYTHON = {
    "--overwrite": "overwrite=True",
    "--settings": "nmt COMMAND --settings",
    "--metric-model FOLDER": "scorer=Comet(folder)",
    "--rerank": "scorer",
    "--source": "sources",
    "--reference": "references",
    "--tokenizer": "tokenizer.kind",
    "--joint": "tokenizer.joint",
    "--vocab-size": "tokenizer.vocab_size",
    "--max-steps": "training.max_steps",
    "--batch-tokens": "batch.tokens",
    "--max-tokens-per-device": "training.max_tokens_per_device",
    "--seed": "training.seed",
    "--validate-every": "validation.every_steps",
    "--save-every": "checkpoints.every_steps",
    "--init-from": "start.model",
    "--deterministic": "training.deterministic",
    "--beam": "search.beam",
    "--length-penalty": "search.length_penalty",
    "--n-best": "search.n_best",
}
"""The argument or setting of the library for an option of a command, if they have different names."""

# Longer names come first (`reverse`), because "--metric" would match the start of "--metric-model FOLDER".
OPTION = re.compile(
    r"(?P<kept>(?<!\w)'[^']*'(?!\w)|\b(?:nmt|pip) [a-z](?:(?!\. ).)*)"
    rf"|--set |(?P<other>{'|'.join(sorted(IN_PYTHON, reverse=True))})(?![a-z-])"
    r"|(?<![\w/-])--(?P<name>[a-z][a-z-]*)"
)
"""An option in a message. Quoted text and commands to type also match, as "kept", because they do not
change."""


def shortened(text: str, limit: int = LONGEST_VALUE) -> str:
    """Return `text` with at most about `limit` characters. The middle of a longer text is left out."""
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"


class UserError(Exception):
    """One or more mistakes that the user can correct.

    Each argument is a message that ends with the remedy. The command line shows one line for each, and exits
    with 1. A message names options, such as "--out". The text of the error, for users of Python, names the
    arguments and settings of the library instead.
    """

    def __init__(self, *messages: object) -> None:
        """`messages` name options as a user of the command line types them, such as "--out"."""
        # The middle is the value. The beginning names it, and the end has the remedy.
        super().__init__(*(shortened(str(message), LONGEST_MESSAGE) for message in messages))

    @property
    def message(self) -> str:
        """All messages as one text, with options, to be a part of another `UserError`."""
        return "; ".join(self.args)

    def __str__(self) -> str:
        return "; ".join(OPTION.sub(_in_python, message) for message in self.args)


def _in_python(option: re.Match[str]) -> str:
    name = IN_PYTHON[option["other"]] if option["other"] else (option["name"] or "").replace("-", "_")
    return option["kept"] or name


def does_not_exist(path: object) -> UserError:
    """Return the error for a missing file or folder."""
    return UserError(f"{path} does not exist. Check the path.")


class Caution(UserWarning):
    """A warning about a problem outside of the program that does not stop the work. It is shown as one
    line."""


class Notice(UserWarning):
    """News for a user who waits. It is shown as one line, but not with --quiet."""
