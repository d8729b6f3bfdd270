"""Shared by the Python tests: temporary installations of plugins, and the command line as a user calls it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins"))

from sites import Run as Run
from sites import Site as Site
from sites import hami_command as hami_command
from sites import site as site
from sites import write_policy as write_policy

# A background job of a shell ignores SIGINT, and its child processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
