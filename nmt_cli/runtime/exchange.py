"""Two names on one disk that change places in one system call, where there is such a call."""

import ctypes
import os
import sys
from pathlib import Path

AT_WORKING_FOLDER = -100
RENAME_EXCHANGE = 2
"""As Linux has it; macOS has the same number for RENAME_SWAP."""


def exchanged(one: Path, other: Path) -> bool:
    """Let each of two folders have the other's name; False where system or file system know no such thing.

    There is no moment at which either name leads nowhere.
    """
    names = os.fsencode(one), os.fsencode(other)
    library = ctypes.CDLL(None)
    try:
        if sys.platform == "darwin":
            code = library.renamex_np(*names, RENAME_EXCHANGE)
        else:
            code = library.renameat2(
                AT_WORKING_FOLDER, names[0], AT_WORKING_FOLDER, names[1], RENAME_EXCHANGE
            )
    except AttributeError:  # a C library of before 2018
        return False
    return bool(code == 0)
