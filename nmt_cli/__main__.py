"""`python -m nmt_cli` is `nmt`."""

from nmt_cli.cli.main import program

if __name__ == "__main__":
    program()
