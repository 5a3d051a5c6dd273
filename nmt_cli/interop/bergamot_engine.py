"""Translate each line of the standard input by Bergamot: `python bergamot_engine.py CONFIG [LINES_AT_ONCE]`.

`bergamot.translate` starts it in a Python of its own, 3.10 or older, because newer ones have no package of
Bergamot. So it imports nothing of nmt. The package downloads a list of models when it is imported, so only
its compiled module is loaded.
"""

import importlib.util
import sys
from itertools import islice
from pathlib import Path
from typing import Any


def compiled_module() -> Any:
    """Return the compiled module of the package bergamot."""
    package = importlib.util.find_spec("bergamot")
    if not package or not package.origin:
        sys.exit("the package bergamot is not installed in this Python")
    (path,) = Path(package.origin).parent.glob("_bergamot*.so")
    found = importlib.util.spec_from_file_location("_bergamot", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def main() -> None:
    """Translate the lines of the standard input."""
    bergamot = compiled_module()
    service = bergamot.Service(bergamot.ServiceConfig(numWorkers=1))
    model = service.modelFromConfigPath(sys.argv[1])
    # One by one, unless speed is measured: Bergamot's limit of length is that of a batch.
    at_once = int(sys.argv[2]) if sys.argv[2:] else 1
    while lines := [line.decode().rstrip("\n") for line in islice(sys.stdin.buffer, at_once)]:
        sources = bergamot.VectorString(lines)
        for response in service.translate(model, sources, bergamot.ResponseOptions()):
            sys.stdout.buffer.write(f"{response.target.text}\n".encode())


if __name__ == "__main__":
    main()
