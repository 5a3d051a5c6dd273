"""Read files that PyTorch pickled, zipped and legacy, without running code from them.

PyTorch's restricted unpickler builds tensors and plain values. An object of a known toolkit's class, such as
its settings, becomes an `Inert`, which keeps its arguments. Any other class is refused.
"""

import argparse
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.serialization import safe_globals

from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import refuse_special
from nmt_cli.runtime.zips import LOCAL_HEADER, check_whole

TOOLKITS = ("fairseq.", "fairseq_cli.", "omegaconf.", "pytorch_lightning.")
STAND_INS = (*TOOLKITS, "argparse.", "enum.", "pathlib.")
"""Prefixes of classes that `Inert` replaces."""

MAX_CLASSES = 200
REFUSED = re.compile(r"GLOBAL ([\w.]+)")
"""The name that PyTorch's unpickler refused, in its error message."""

# By a number, because the versions of NumPy have this function in different modules.
SCALAR = numpy.float64(0).__reduce__()[0]
DTYPES = [name for name in dir(numpy.dtypes) if name.endswith("DType")]
NUMPYS: Mapping[str, Any] = {
    "numpy.core.multiarray.scalar": SCALAR,
    "numpy._core.multiarray.scalar": SCALAR,
    "numpy.dtype": numpy.dtype,
} | {f"numpy.dtypes.{name}": getattr(numpy.dtypes, name) for name in DTYPES}
"""The classes of NumPy's numbers, by their names in pickled files of old and new versions."""


class Inert:
    """Replacement without behaviour for an object of another class. It keeps unnamed arguments and state."""

    def __init__(self, *parts: Any, **named: Any) -> None:
        self.parts = parts

    def __setstate__(self, state: Any) -> None:
        self.state = state


def read_pickled(path: Path) -> Any:
    """Return the value in a pickled file, with tensors on the CPU. No code of the file is run.

    Objects of a known toolkit become `Inert`. Raise `UserError` if the file is damaged, names any other
    class, or names more than `MAX_CLASSES`. Files of PyTorch before 1.6 have no checksums, so some damage
    goes unnoticed.
    """
    refuse_special(path)
    with path.open("rb") as file:
        is_zip = file.read(len(LOCAL_HEADER)) == LOCAL_HEADER  # as PyTorch decides
    if is_zip:
        check_whole(path)
    allowed: dict[str, Any] = {"argparse.Namespace": argparse.Namespace}
    allowed |= NUMPYS
    # The unpickler stops at the first unknown name, so each attempt reveals one more.
    for _ in range(MAX_CLASSES):
        try:
            with warnings.catch_warnings(), safe_globals([(part, name) for name, part in allowed.items()]):
                warnings.simplefilter("ignore")
                return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # the bytes are arbitrary, so the error may be of any kind
            match = REFUSED.search(str(error))
            if not match:
                raise UserError(f"{path} is damaged or not a PyTorch file. Copy it again.") from error
            name = match[1]
            if name in allowed or not name.startswith(STAND_INS):
                raise UserError(
                    f"{path} asks to run {name}, which no model needs. Nothing was run. Do not use this file."
                ) from error
            allowed[name] = type("Inert", (Inert,), {})
    raise UserError(f"{path} names more than {MAX_CLASSES} classes, so it is not a model.")
