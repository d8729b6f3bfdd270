"""The hook of PyInstaller packs each installed plugin. A fake of PyInstaller's functions records what it collects.

With PyInstaller itself, a frozen program was tried by hand: packing takes too long for each run.
"""

from __future__ import annotations

import importlib.metadata as metadata
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hami
import pytest

from hami_tools.frozen import hook_folders


def collected(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the hook with functions that name what they are asked for, and return its variables."""
    hooks = types.ModuleType("PyInstaller.utils.hooks")

    def collector(kind: str) -> Callable[..., list[Any]]:
        return lambda name, **_: [name] if kind == "module" else [(name, kind)]

    for function, kind in {
        "collect_submodules": "module",
        "copy_metadata": "metadata",
        "collect_data_files": "data",
        "collect_dynamic_libs": "library",
    }.items():
        setattr(hooks, function, collector(kind))
    for name in ("PyInstaller", "PyInstaller.utils"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "PyInstaller.utils.hooks", hooks)
    (folder,) = hook_folders()
    return runpy.run_path(str(Path(folder) / "hook-hami.py"))


def test_the_hook_packs_the_core_and_every_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HAMI_PLUGINS", raising=False)
    found = collected(monkeypatch)
    names = {plugin.distribution for plugin in hami.plugins() if plugin.version}
    assert names
    assert {name for name, kind in found["datas"] if kind == "metadata"} == names | {"hami-core"}
    modules = {name.replace("-", "_") for name in names}
    assert modules | {"hami"} == set(found["hiddenimports"])
    assert {name for name, kind in found["binaries"] if kind == "library"} == modules | {"hami"}


def test_plugins_that_are_disabled_are_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [record._replace(state="disabled") for record in hami.plugins()]
    monkeypatch.setattr(hami, "plugins", lambda: records)
    assert collected(monkeypatch)["hiddenimports"] == ["hami"]


def test_the_wheel_names_the_hook() -> None:
    declared = metadata.entry_points(group="pyinstaller40")
    assert "hami_tools.frozen:hook_folders" in [each.value for each in declared]
