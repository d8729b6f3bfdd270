"""The code of the commands in ci/."""

import os
import sys
from pathlib import Path

# The tests start thousands of processes and install hundreds of times. Python compiles a module when the first process
# imports it, which needs less time than pip for all, and keeps the result, which images of containers often forbid.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("PIP_COMPILE", "0")

# The packaging tools are a distribution of their own; a bare checkout uses their sources.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "hami-plugins" / "hami-build" / "python"))

from . import paths as paths
