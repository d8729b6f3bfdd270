"""Shared by the tests of the core and of hami-tools: temporary installations of plugins, and the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_site import install
from hami._plugins import policy
from hami._plugins.manager import PluginManager


class Site:
    """A folder that plugins are installed into, and a discovery that finds only these plugins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, *projects: str) -> None:
        for project in projects:
            install(project, self.folder)

    def plugins(self, setting: str | None = None) -> PluginManager:
        return PluginManager({} if setting is None else {"HAMI_PLUGINS": setting})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    installed = [entry for entry in sys.path if "site-packages" in entry]
    monkeypatch.setattr(sys, "path", [str(folder), *(entry for entry in sys.path if entry not in installed)])
    before = set(sys.modules)
    yield Site(folder)
    for name in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def hami_command(tmp_path: Path) -> Run:
    """Run the command line in a separate process, with the folder of plugins `site` on its path."""

    def run(
        *arguments: str, site: Path | None = None, given: str = "", **environment: str
    ) -> subprocess.CompletedProcess:
        path = {"PYTHONPATH": os.pathsep.join(filter(None, [str(site or ""), os.environ.get("PYTHONPATH", "")]))}
        return subprocess.run(
            [sys.executable, "-m", "hami", *arguments],
            input=given,
            capture_output=True,
            text=True,
            env={**os.environ, **path, **environment},
            cwd=tmp_path,
            timeout=60,
        )

    return run


@pytest.fixture
def write_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Write a policy file in a folder that only this user may change."""
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o755)
    monkeypatch.setattr(policy, "PATH", folder / "policy.toml")

    def write(text: str) -> Path:
        policy.PATH.write_text(text)
        policy.PATH.chmod(0o644)
        return policy.PATH

    return write
