"""Translate each line of the standard input by Bergamot: `python bergamot_engine.py CONFIG`.

`bergamot.translate` starts it in a Python of its own, 3.10 or older, because newer ones have no package of
Bergamot. So it imports nothing of nmt. The package downloads a list of models when it is imported, so only
its compiled module is loaded.
"""

import importlib.util
import sys
from pathlib import Path

package = importlib.util.find_spec("bergamot")
assert package is not None
assert package.origin is not None
(path,) = Path(package.origin).parent.glob("_bergamot*.so")
found = importlib.util.spec_from_file_location("_bergamot", path)
assert found is not None
assert found.loader is not None
bergamot = importlib.util.module_from_spec(found)
found.loader.exec_module(bergamot)

service = bergamot.Service(bergamot.ServiceConfig(numWorkers=1))
model = service.modelFromConfigPath(sys.argv[1])
for line in sys.stdin.buffer:  # one by one: Bergamot's limit of length is that of a batch
    source = bergamot.VectorString([line.decode().rstrip("\n")])
    (response,) = service.translate(model, source, bergamot.ResponseOptions())
    sys.stdout.buffer.write(f"{response.target.text}\n".encode())
