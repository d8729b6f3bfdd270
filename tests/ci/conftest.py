"""Makes the code of ci/ importable."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ci"))

import _lib as _lib  # makes hami_build importable
