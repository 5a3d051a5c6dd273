"""The command line. Each command is a file in `commands`."""

import sys

if sys.platform == "win32":  # before any import that fails there
    sys.exit("Error: nmt runs on Linux and macOS. On Windows, use WSL.")
