"""python -m hami: the command line, where its script is not on the path."""

import sys

from hami._cli.main import main

if __name__ == "__main__":
    sys.exit(main())
