"""The public names of the package, and the stub of the core."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import hami
from hami import _core
from running import TIMEOUT


def test_everything_exported_exists_and_is_sorted() -> None:
    assert dir(hami) == hami.__all__  # completion shows nothing else
    assert hami.__all__ == sorted(hami.__all__)
    assert [name for name in hami.__all__ if not hasattr(hami, name)] == []


def test_the_package_has_at_most_30_names() -> None:
    assert len([name for name in hami.__all__ if not name.startswith("_")]) <= 30


def test_the_import_loads_neither_the_other_public_modules_nor_the_conversion_of_tensors() -> None:
    """Each is loaded when a program first uses it."""
    program = """
import sys, hami
late = ("hami.batching", "hami.native", "hami.observe", "hami.types", "hami._runtime.tensors")
assert [name for name in late if name in sys.modules] == []
hami.batching.scatter, hami.native.get_include, hami.observe.NodeStats, hami.types.Duration, hami.to_numpy
assert [name for name in late if name not in sys.modules] == []
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=TIMEOUT)


def test_every_exception_is_exported() -> None:
    from hami import _errors

    assert set(_errors.__all__) <= set(hami.__all__)


def test_the_stub_of_the_core_matches_the_core() -> None:
    stub = Path(hami.__file__).with_name("_core.pyi")
    declared: dict[str, set[str]] = {}
    functions = set()
    for node in ast.parse(stub.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            declared[node.name] = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            functions.add(node.name)
    present = {name for name in vars(_core) if not name.startswith("_")}
    assert present == functions | set(declared)
    for name, members in declared.items():
        own = {member for member in vars(getattr(_core, name)) if not member.startswith("_")}
        assert own == {member for member in members if not member.startswith("_")}, name
