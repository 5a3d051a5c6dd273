"""PyTorch's pickled files, zip and legacy: tensors and plain values are built, and nothing else is ever run.

PyTorch's own restricted unpickler reads them. A class that it does not know, such as the settings of the
toolkit that wrote the file, becomes an inert stand-in that keeps what it is given; a name that is none of
such a toolkit's is refused.
"""

import argparse
import re
import warnings
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.serialization import safe_globals

from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import refuse_odd
from nmt_cli.runtime.zips import LOCAL_HEADER, check_whole

STAND_INS = ("fairseq.", "fairseq_cli.", "omegaconf.", "argparse.", "enum.", "pathlib.")
"""What the names of classes begin with whose values nobody needs."""

MOST_CLASSES = 200
REFUSED = re.compile(r"(?:GLOBAL|class|Unsupported (?:global|class|operand):?)\s+`?([\w.]+\.[\w.]+)")


class Inert:
    """Keeps what it is made of, and does nothing."""

    def __init__(self, *parts: Any, **named: Any) -> None:
        self.parts = parts

    def __setstate__(self, state: Any) -> None:
        self.state = state


def read_pickled(path: Path) -> Any:
    """Return what PyTorch pickled into a file. `UserError` if it is damaged, or asks for code to be run.

    Damage is sure to be found only in zips: files of PyTorch before 1.6 have no checksum.
    """
    refuse_odd(path)
    with path.open("rb") as file:
        is_zip = file.read(len(LOCAL_HEADER)) == LOCAL_HEADER  # as PyTorch decides
    if is_zip:
        check_whole(path)
    allowed: dict[str, Any] = {"argparse.Namespace": argparse.Namespace}
    allowed |= {name: part for part, name in NUMPYS}
    # The unpickler stops at the first name that it does not know, so each attempt learns of one more.
    for _ in range(MOST_CLASSES):
        try:
            with warnings.catch_warnings(), safe_globals([(part, name) for name, part in allowed.items()]):
                warnings.simplefilter("ignore")
                return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # of any kind, where the bytes are anything
            found = REFUSED.search(str(error))
            if not found:
                first = " ".join(str(error).split("\n")[0].split())[:120]
                raise UserError(f"{path} is damaged, or no file of PyTorch's ({first}).") from error
            name = found[1]
            if name in allowed or not name.startswith(STAND_INS):
                raise UserError(
                    f"{path} asks for {name} to be run, which no model needs; nothing was. "
                    "Don't use this file."
                ) from error
            allowed[name] = type("Inert", (Inert,), {})
    raise UserError(f"{path} names more than {MOST_CLASSES} classes; it is no model.")


def _numpys() -> list[tuple[Any, str]]:
    """What NumPy's numbers are pickled with; old files have the room's old name."""
    kinds = [getattr(numpy.dtypes, name) for name in dir(numpy.dtypes) if name.endswith("DType")]
    scalar = numpy.float64(0).__reduce__()[0]
    return [
        (scalar, "numpy.core.multiarray.scalar"),
        (scalar, "numpy._core.multiarray.scalar"),
        (numpy.dtype, "numpy.dtype"),
        *((kind, f"numpy.dtypes.{kind.__name__}") for kind in kinds),
    ]


NUMPYS = _numpys()
