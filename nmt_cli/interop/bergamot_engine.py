"""Translate each line of the standard input by Bergamot: `python bergamot_engine.py CONFIG`.

`bergamot.translate` starts it in a Python of its own, 3.10 or older, because newer ones have no package of
Bergamot. So it imports nothing of nmt. The package downloads a list of models when it is imported, so only
its compiled module is loaded.
"""

import importlib.util
import sys
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
    for line in sys.stdin.buffer:  # one by one: Bergamot's limit of length is that of a batch
        source = bergamot.VectorString([line.decode().rstrip("\n")])
        (response,) = service.translate(model, source, bergamot.ResponseOptions())
        sys.stdout.buffer.write(f"{response.target.text}\n".encode())


if __name__ == "__main__":
    main()
