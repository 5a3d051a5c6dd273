"""`python -m nmt_cli` is `nmt`."""

from nmt_cli.cli.main import main

if __name__ == "__main__":
    main()
