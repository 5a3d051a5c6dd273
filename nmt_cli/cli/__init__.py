"""The command line: a file for each command."""

import sys

if sys.platform == "win32":  # before anything is imported that Python lacks there
    sys.exit("Error: nmt runs on Linux and macOS; on Windows use WSL.")
