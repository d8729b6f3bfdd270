"""`python -m hami_build` is the command `hami-build`."""

import sys

from hami_build.commands import main

sys.exit(main())
