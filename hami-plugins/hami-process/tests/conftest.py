"""One child process for all tests that do not need one of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hami
import process_backends  # noqa: F401  # registers the backends
import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "tests" / "plugins"))  # together.py


@pytest.fixture(scope="session")
def shared() -> Iterator[hami.Pipe]:
    words = ["$${node_name},"]
    keys = {"note": "$${max_queue_size}", "words": words, "environment": ["HAMI_TEST_VARIABLE=at {instance}"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAMI_ALLOWED_VARIABLES", "OTHER, HAMI_TEST_VARIABLE")
        made = hami.pipe({"acts": {"backend": "Process[Act(step=3)]", **keys}})
    with made as pipe:
        yield pipe


@pytest.fixture
def act(shared: hami.Pipe) -> Callable[..., Any]:
    """act("echo", 1) runs one request in the shared child and returns its result."""
    return lambda *data, **keys: shared({"data": data, **keys})["result"]
