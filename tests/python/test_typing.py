"""mypy --strict and pyright accept the backends and calls of typing_backend.py."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import hami
import pytest

FILE = Path(__file__).with_name("typing_backend.py")
PACKAGES = Path(hami.__file__).parents[1]


def run(checker: str, *arguments: str, **environment: str) -> None:
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    done = subprocess.run(
        [sys.executable, "-m", checker, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_accepts_the_backends_of_plugin_authors(tmp_path: Path) -> None:
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nstrict = true\n[mypy-tomli.*,numpy.*]\nignore_missing_imports = true\n", "utf-8")
    paths = {} if PACKAGES.name.endswith("-packages") else {"MYPYPATH": str(PACKAGES)}
    run("mypy", f"--config-file={settings}", f"--cache-dir={tmp_path / 'cache'}", str(FILE), **paths)


def test_pyright_accepts_the_backends_of_plugin_authors(tmp_path: Path) -> None:
    settings = {"include": [str(FILE)], "extraPaths": [str(PACKAGES)], "typeCheckingMode": "strict"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    run("pyright", f"--pythonpath={sys.executable}", f"--project={tmp_path}")


def test_the_range_may_be_declared_by_a_property() -> None:
    @hami.register
    class TypingProperty(hami.Backend):
        def init(self, options: hami.types.DictView) -> None:
            self.limit = 3

        @property
        def max(self) -> int:
            return self.limit

        def forward(self, batch: list[hami.Request]) -> None:
            for item in batch:
                item["result"] = len(batch)

    with hami.pipe({"backend": "TypingProperty", "batching": "greedy"}) as pipe:
        assert max(request["result"] for request in pipe([{"data": 0} for _ in range(6)])) == 3


def test_an_error_of_a_property_that_declares_the_range_is_raised() -> None:
    @hami.register
    class TypingBrokenProperty(hami.Backend):
        @property
        def max(self) -> int:
            raise LookupError("no engine")

        def forward(self, batch: list[hami.Request]) -> None: ...

    with pytest.raises(LookupError, match="no engine"):
        hami.pipe("TypingBrokenProperty")
