"""The code of the commands in ci/."""

import sys
from pathlib import Path

# The packaging tools are a distribution of their own; a bare checkout uses their sources.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "hami-plugins" / "hami-build" / "python"))

from . import paths as paths
