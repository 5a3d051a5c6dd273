"""Install a package with Argos Translate, and translate with it.

python argos_translate.py PACKAGE <LINES >TRANSLATIONS

Packages are installed in a temporary folder. Each line counts as one sentence, because Argos Translate would
download a model to split sentences.
"""

import importlib
import json
import os
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


class OneSentence:
    """Replaces the sentence splitter."""

    def __init__(self, package: object) -> None:
        """Accept any package."""

    def split_sentences(self, text: str) -> list[str]:
        """Return the whole text as one sentence."""
        return [text]


def main() -> None:
    """Translate standard input."""
    path = Path(sys.argv[1])
    with zipfile.ZipFile(path) as package:
        file = next(name for name in package.namelist() if name.endswith("metadata.json"))
        metadata = json.loads(package.read(file))
    with TemporaryDirectory() as home:
        # Read once, when the package is imported.
        os.environ |= {f"XDG_{name}_HOME": home for name in ("DATA", "CONFIG", "CACHE")}
        os.environ |= {"ARGOS_PACKAGES_DIR": f"{home}/packages", "ARGOS_INTRA_THREADS": "1"}
        os.environ["ARGOS_COMPUTE_TYPE"] = "default"  # that of the package
        argos: dict[str, Any] = {
            name: importlib.import_module(f"argostranslate.{name}") for name in ("package", "translate")
        }
        argos["translate"].MiniSBDSentencizer = OneSentence
        argos["package"].install_from_path(path)
        for line in sys.stdin.read().splitlines():
            print(argos["translate"].translate(line, metadata["from_code"], metadata["to_code"]))


if __name__ == "__main__":
    main()
