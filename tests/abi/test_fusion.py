"""A native class absorbs the backends that follow it in a Sequential."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import hami
import pytest
from conftest import HERE, Toolchain
from hami_tools import Graph

Build = Callable[..., Path]
SOURCE = HERE / "plugins" / "fusion.cpp"


@pytest.fixture
def fusion(toolchain: Toolchain, build: Build) -> str:
    hami.native.register_plugin(build(toolchain, SOURCE))
    return toolchain.prefix


def runs(pipe: hami.Pipe) -> int:
    """Return how often forward of any backend was called."""
    (node,) = pipe.stats().values()
    return node.counters["runs"]


@pytest.mark.parametrize(
    ("expression", "result", "expected_runs"),
    [
        ("Scale,Shift", 31, 1),
        ("Scale,Shift,Scale,Halve", 155, 2),  # Shift does not absorb Scale
        ("Scale,Halve,Shift", 16, 2),
        ("Shift,Halve", 2, 1),
        ("Scale(fuse=false),Shift,Halve", None, 2),
        ("Scale,Shift(fuse=false),Scale", 310, 2),
        ("Scale,Shift(device=acme)", 31, 2),
        ("Scale,(or)Shift", 30, 1),
    ],
)
def test_one_backend_does_the_work_of_a_chain(
    fusion: str, expression: str, result: int | None, expected_runs: int
) -> None:
    names = expression.replace("S", f"{fusion}S").replace("Halve", f"{fusion}Halve")
    with hami.pipe(f"S[{names}]") as pipe:
        request = {"data": 3}
        if result is None:
            with pytest.raises(hami.RequestError, match="Halve takes even numbers, got 31"):
                pipe(request)
        else:
            pipe(request)
            assert request["result"] == result
        assert runs(pipe) == expected_runs


def test_a_key_of_the_node_turns_fusion_off(fusion: str) -> None:
    with hami.pipe({"backend": f"S[{fusion}Scale,{fusion}Shift]", "fuse": False}) as pipe:
        assert pipe({"data": 3})["result"] == 31
        assert runs(pipe) == 2


def test_a_request_that_fails_in_a_fused_backend_fails_alone_and_names_it(fusion: str) -> None:
    requests = [{"data": 3}, {"data": 4}]
    config = {"backend": f"S[{fusion}Shift,{fusion}Halve]", "max": 2, "batching": "greedy"}
    with hami.pipe(config) as pipe, pytest.raises(hami.BatchError) as raised:
        pipe(requests)
    ((index, error),) = raised.value.errors
    assert index == 1
    assert str(error).startswith("Halve takes even numbers, got 5")
    assert f"backend {fusion}Shift+{fusion}Halve" in "\n".join([str(error), *getattr(error, "__notes__", [])])
    assert requests[0]["result"] == 2


def test_a_fused_chain_takes_as_many_items_as_its_narrowest_backend(fusion: str) -> None:
    with pytest.raises(hami.ConfigError, match=r"max is 8; the backend of node .* takes at most 2"):
        hami.pipe({"backend": f"S[{fusion}Shift,{fusion}Halve]", "max": 8})


def test_the_description_names_the_absorbed_backends(fusion: str) -> None:
    with hami.pipe(f"S[Identity,{fusion}Scale,{fusion}Shift,Identity]") as pipe:
        (sequential,) = pipe.describe()["nodes"]["default"]["backends"]
        assert [each["absorbed"] for each in sequential["children"]] == [False, False, True, False]


def test_pictures_join_the_backends_that_run_as_one(fusion: str) -> None:
    with hami.pipe(f"S[{fusion}Shift,{fusion}Scale,{fusion}Shift,{fusion}Halve,List[Identity]]") as pipe:
        (node,) = Graph.of(pipe).nodes
    assert node.backends == f"S[{fusion}Shift,{fusion}Scale+{fusion}Shift+{fusion}Halve,List[Identity]]"
    fused = [line.split("(")[0].strip() for line in node.details if line.endswith("runs with the backend before it")]
    assert fused == [f"{fusion}Shift", f"{fusion}Halve"]


@pytest.mark.parametrize(
    ("define", "message"),
    [
        ("-DWITHOUT_FUSE", 'has absorbs, so it needs the parameter "fuse: bool = true", which turns it off'),
        ("-DUNKNOWN_NAME", 'class "Bad" of plugin "fusion" absorbs "Identity", which is not a class of this plugin'),
    ],
)
def test_a_wrong_declaration_is_an_error_of_the_plugin(
    toolchain: Toolchain, build: Build, define: str, message: str
) -> None:
    with pytest.raises(hami.PluginError) as caught:
        hami.native.register_plugin(build(toolchain, SOURCE, define))
    assert message in str(caught.value)
