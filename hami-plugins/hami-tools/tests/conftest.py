"""The fixtures `site` and `hami_command`, and the helpers of the tests of the core: these tests need a checkout."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "plugins"), str(ROOT / "tests" / "python")]

from sites import Run as Run  # noqa: E402
from sites import Site as Site  # noqa: E402
from sites import hami_command as hami_command  # noqa: E402
from sites import site as site  # noqa: E402
from sites import write_policy as write_policy  # noqa: E402

# A background job of a shell ignores SIGINT, and its child processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what these tests remember about publishers apart from what the user has."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "remembered"))
