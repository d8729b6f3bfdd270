"""Every public name of the Python sources has a docstring with an example, and every example runs."""

from __future__ import annotations

import doctest
import inspect
import sys
from pathlib import Path

import hami
import hami.observe
import pytest
from hami import _core

# Not the classes and functions of the core, which _core.pyi documents.
MODULES = (hami, hami.native, hami.types)
PUBLIC = {name: getattr(module, name) for module in MODULES for name in module.__all__ if name != "__version__"}
NAMED = {name: named for name, named in PUBLIC.items() if named not in vars(_core).values()}
NAMED |= {named.__name__: named for named in (hami.observe,)}
EXAMPLES = [
    example for name, named in NAMED.items() for example in doctest.DocTestFinder(recurse=False).find(named, name)
] + [
    example
    for cls in (hami.Pipe, *hami.Pipe.__bases__, hami.observe.NodeStats, hami.Backend)
    for name, member in vars(cls).items()
    if inspect.isfunction(member)
    for example in doctest.DocTestFinder(recurse=False).find(member, f"{cls.__name__}.{name}")
]
# Functions whose module needs an optional package.
OPTIONAL = {"prometheus": "prometheus_client", "opentelemetry": "opentelemetry"}


@pytest.mark.parametrize("name", NAMED)
def test_every_public_name_has_an_example(name: str) -> None:
    assert ">>> " in (NAMED[name].__doc__ or "")


@pytest.mark.parametrize("name", OPTIONAL)
def test_the_example_of_a_function_with_an_optional_package_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(OPTIONAL[name])
    (example,) = doctest.DocTestFinder(recurse=False).find(getattr(hami.observe, name), name)
    test_the_example_of_a_docstring_runs(example, tmp_path, monkeypatch)


@pytest.mark.parametrize("example", [each for each in EXAMPLES if each.examples], ids=lambda each: each.name)
def test_the_example_of_a_docstring_runs(
    example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # for the files that it writes
    if "numpy" in example.docstring:
        pytest.importorskip("numpy")
    if sys.version_info < (3, 11) and "print(error)" in example.docstring:
        pytest.skip("exceptions have no notes before Python 3.11: the message contains the place")
    example.globs = {"hami": hami, "__name__": __name__}
    output: list[str] = []
    flags = doctest.IGNORE_EXCEPTION_DETAIL if "Traceback" in example.docstring else 0
    results = doctest.DocTestRunner(optionflags=flags).run(example, out=output.append)
    assert results.failed == 0, "".join(output)


@pytest.mark.parametrize("name", [name for name in NAMED if inspect.isfunction(NAMED[name])])
def test_every_argument_of_a_public_function_is_described(name: str) -> None:
    arguments = list(inspect.signature(NAMED[name]).parameters)
    section = (inspect.getdoc(NAMED[name]) or "").partition("Args:")[2]
    assert [argument for argument in arguments if f"\n    {argument}: " not in section] == []
