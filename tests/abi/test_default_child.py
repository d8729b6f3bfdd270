"""A native class names the backend that its brackets have where it is written without them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import HERE, Toolchain

Build = Callable[..., Path]
SOURCE = HERE / "plugins" / "default_child.cpp"


@pytest.fixture
def outer(toolchain: Toolchain, build: Build) -> str:
    """The name of the class whose default child is `inner`"""
    hami.native.register_plugin(build(toolchain, SOURCE))
    return f"{toolchain.prefix}Outer"


@pytest.fixture
def inner(outer: str) -> str:
    class Inner(hami.Backend):
        limit: int = 1
        wait: hami.types.Duration = 1.0
        title: str | None = "its own"
        other: int = 2

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = (self.limit, self.title, self.other, self.wait)

    name = outer.replace("Outer", "Inner")
    Inner.__name__ = Inner.__qualname__ = name
    hami.register(Inner)
    return name


def ask(config: Any) -> Any:
    with hami.pipe(config) as pipe:
        return pipe({"data": 0})["result"]


def test_without_a_backend_of_that_name_there_is_no_child(outer: str) -> None:
    assert ask(outer.replace("Outer", "Alone")) == "no child"


BROKEN = """
import sys
import hami
library, prefix = sys.argv[1:]
hami.native.register_plugin(library)
with hami.pipe(prefix + "Outer") as pipe:
    print(pipe({"data": 0})["result"])
try:
    hami.pipe(prefix + "Needs")
except Exception as error:
    print(str(error).replace("\\n", " "), *getattr(error, "__notes__", []))
"""


def test_an_error_says_why_the_plugin_of_the_child_could_not_be_loaded(
    toolchain: Toolchain, build: Build, tmp_path: Path
) -> None:
    name = f"{toolchain.prefix}Inner"
    info = tmp_path / "acme_inner-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-inner\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[hami]\ninner = acme_inner\n[hami.backends]\n{name} = acme_inner\n")
    (tmp_path / "acme_inner.py").write_text("raise ImportError('libinner.so.1 is missing')\n")
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, str(build(toolchain, SOURCE)), toolchain.prefix],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "no child" in done.stdout
    assert (
        f'in init of {toolchain.prefix}Needs without its default child (backend "{name}" '
        "is provided by acme-inner 1.0, which failed to load: libinner.so.1 is missing)"
    ) in done.stdout


def test_the_child_has_the_parameters_of_the_class(outer: str, inner: str) -> None:
    assert ask(outer) == (7, "its own", 2, 0.005)
    assert ask(f"{outer}(limit=3,title=given)") == (3, "given", 2, 0.005)
    assert ask({"backend": outer, "limit": 4, "other": 5}) == (4, "its own", 5, 0.005)
    assert ask({"backend": f"{outer}(limit=3)", "limit": 4, f"{inner}.other": 6}) == (3, "its own", 6, 0.005)


def test_brackets_replace_the_default(outer: str, inner: str) -> None:
    assert ask(f"{outer}[Identity]") == 0
    assert ask(f"{outer}(limit=3)[{inner}]") == (1, "its own", 2, 1.0)


def test_a_name_that_an_ioc_binds_is_not_the_default_child(outer: str, inner: str) -> None:
    assert ask(f"IoC[{inner}:=Identity;{outer}]") == (7, "its own", 2, 0.005)


def test_the_description_shows_the_child(outer: str, inner: str) -> None:
    with hami.pipe(f"S[{outer}(limit=3),Identity]") as pipe:
        (sequential,) = pipe.describe()["nodes"]["default"]["backends"]
    ((child,), none) = (each["children"] for each in sequential["children"])
    assert (child["name"], child["params"]["limit"], none) == (inner, 3, [])


@pytest.mark.parametrize(
    ("define", "message"),
    [
        ("-DWITHOUT_BRACKETS", "must accept one backend in its brackets: min_children=0, max_children=0"),
        ("-DNO_NAME", 'has a default_child that is not a valid backend name: "Identity,Log"'),
    ],
)
def test_a_wrong_declaration_is_an_error_of_the_plugin(
    toolchain: Toolchain, build: Build, define: str, message: str
) -> None:
    with pytest.raises(hami.PluginError) as caught:
        hami.native.register_plugin(build(toolchain, SOURCE, define))
    assert message in str(caught.value)
