"""Exchange the names of two folders in one system call."""

import ctypes
import os
import sys
from pathlib import Path

AT_WORKING_FOLDER = -100
RENAME_EXCHANGE = 2
"""Linux's number. RENAME_SWAP of macOS has the same one."""


def exchanged(folder: Path, other: Path) -> bool:
    """Exchange the names of two folders on one disk atomically. Return whether the system could do it."""
    names = os.fsencode(folder), os.fsencode(other)
    library = ctypes.CDLL(None)
    try:
        if sys.platform == "darwin":
            code = library.renamex_np(*names, RENAME_EXCHANGE)
        else:
            code = library.renameat2(
                AT_WORKING_FOLDER, names[0], AT_WORKING_FOLDER, names[1], RENAME_EXCHANGE
            )
    except AttributeError:  # a C library from before 2018
        return False
    return bool(code == 0)
