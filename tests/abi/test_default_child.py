"""A native class names the backend that its brackets have where it is written without them."""

from __future__ import annotations

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


def test_a_problem_of_a_parameter_of_both_is_reported_once(outer: str, inner: str) -> None:
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": outer, "limit": "many"})
    assert str(error.value).splitlines()[0] == f'parameter "limit" of {outer} takes int, got "many"'


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
