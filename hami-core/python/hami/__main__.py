"""Runs the command line as `python -m hami`."""

import sys

from hami._cli.main import main

if __name__ == "__main__":
    sys.exit(main())
