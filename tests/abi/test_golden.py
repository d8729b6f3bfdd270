"""Plugins built with the header of an earlier version and with any compiler work with this core."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hami
import numpy as np
import pytest
from conftest import GOLDEN, TOOLCHAINS, Toolchain

Golden = Callable[..., str]


def call(expression: str, data: Any, **nodes: Any) -> dict[str, Any]:
    with hami.pipe({"node": {"backend": expression, **nodes}}) as pipe:
        return pipe({"data": data})


def test_a_plugin_exports_only_its_entry_function(toolchain: Toolchain, build: Callable[..., Path]) -> None:
    for source in ("full.cpp", "plain.c"):
        library = build(toolchain, GOLDEN / source, include=GOLDEN / "include")
        done = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
        assert [line.split()[-1] for line in done.stdout.splitlines()] == ["hami_plugin_v1"]


def test_a_plugin_in_plain_c_works(toolchain: Toolchain, golden: Golden) -> None:
    name = golden(toolchain, "plain.c") + "Add"
    assert call(f"{name}(step=40)", 2)["result"] == 42
    assert call(name, 2)["result"] == 3
    with pytest.raises(hami.DataTypeError, match=r"\Aexpected an int") as caught:
        call(name, "two")
    assert f"backend {name}" in "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def test_the_declarations_of_a_class_are_visible(toolchain: Toolchain, golden: Golden) -> None:
    prefix = golden(toolchain)
    info = hami.backends()[f"{prefix}Configured"]
    assert (info.owner, info.doc, info.thread, info.range) == ("", "Gives its parameters.", "dedicated", "")
    assert hami.backends()[f"{prefix}Pairs"].range == "as its instances declare"
    assert [param["text"] for param in info.params or []] == [
        "flag: bool",
        "count: int = 3 {1..9}",
        "ratio: float = 0.5",
        'text: str = "a b" {a b,c}',
        'names: list = ["x", "y"]',
        "maybe: str = None",
    ]
    assert hami.backends()[f"{prefix}Twice"].brackets == "[backend]"
    assert hami.backends()[f"{prefix}Twice"].thread == "concurrent"
    assert hami.backends()[f"{prefix}OneAtATime"].thread == "serialized"


def test_parameters_have_their_declared_types(toolchain: Toolchain, golden: Golden) -> None:
    prefix = golden(toolchain)
    out = call(f"{prefix}Configured", 0, flag="yes", ratio="2.5", names=["p", "q", "r"])
    assert out["result"] == [True, 3, 2.5, "a b", ["p", "q", "r"], "nothing"]
    assert (out["names"], out["node"]) == (3, "node")
    with pytest.raises(hami.ConfigError, match="count"):
        call(f"{prefix}Configured", 0, flag="yes", count=10)
    with pytest.raises(hami.ConfigError, match='did you mean "flag"'):
        call(f"{prefix}Configured(flg=1)", 0, flag="yes")


@pytest.mark.parametrize(
    "data",
    [
        None,
        True,
        -3,
        2**62,
        1.5,
        "",
        "höhe",
        b"",
        b"\x00\xff",
        [],
        [1, [2, "three", None]],
        {},
        {"a": {"b": [b"c"]}},
    ],
    ids=repr,
)
def test_values_rebuilt_by_a_plugin_are_equal(toolchain: Toolchain, golden: Golden, data: Any) -> None:
    out = call(golden(toolchain) + "Rebuild", data)
    assert (type(out["result"]), out["result"]) == (type(data), data)
    assert out["keys"] == ["data", "result"]


def test_a_plugin_can_read_size_priority_and_deadline_of_a_request(toolchain: Toolchain, golden: Golden) -> None:
    with hami.pipe({"node": {"backend": golden(toolchain) + "Rebuild", "max": 4}}) as pipe:
        assert pipe({"data": 0})["told"] == [1, 0, False, True]
        asked = pipe({"data": 0, "request_size": 3, "priority": 7}, timeout=60)
        assert asked["told"] == [3, 7, False, False]


def test_python_objects_pass_through_a_plugin_unchanged(toolchain: Toolchain, golden: Golden) -> None:
    thing = object()
    assert call(golden(toolchain) + "Rebuild", thing)["result"] is thing
    event = hami.Event()
    assert call(golden(toolchain) + "Rebuild", [event])["result"][0] is event


def test_tensors_are_read_and_shared_without_copies(toolchain: Toolchain, golden: Golden) -> None:
    prefix = golden(toolchain)
    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert np.array_equal(hami.to_numpy(call(f"{prefix}Scale(factor=0.5)", given)["result"]), given / 2)
    shared = hami.to_numpy(call(f"{prefix}Share", given)["result"])
    assert np.shares_memory(shared, given)
    counted = hami.to_numpy(call(f"{prefix}Count", 5)["result"])
    assert counted.tolist() == [0, 1, 2, 3, 4]
    # The first two messages come from the SDK, the golden one or the current one.
    for data, messages in (
        (
            given.astype(np.float64),
            ("the tensor has elements of another type", "the elements of the tensor do not have the expected type"),
        ),
        (
            given.T,
            ("the tensor does not lie row by row without gaps", "the tensor is not contiguous in row-major order"),
        ),
        ("text", ("expected a tensor, got str",)),
    ):
        with pytest.raises(hami.DataTypeError) as caught:
            call(f"{prefix}Scale(factor=0.5)", data)
        assert str(caught.value).splitlines()[0] in messages


@pytest.mark.parametrize("maker", TOOLCHAINS, ids=lambda made: f"from-{made.name}")
@pytest.mark.parametrize("reader", TOOLCHAINS, ids=lambda made: f"to-{made.name}")
def test_plugins_exchange_tensors_and_opaque_values(golden: Golden, maker: Toolchain, reader: Toolchain) -> None:
    @hami.register
    class AbiPasses(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = item["data"]

    first, second = golden(maker), golden(reader)
    out = call(f"S[{first}MakeTag,AbiPasses,{second}ReadTag]", 7)
    assert out["result"] == 7
    assert repr(out["tag"]) == "<hami.types.Opaque golden.tag>"
    assert (type(out["tag"]), out["tag"].type_key) == (hami.types.Opaque, "golden.tag")
    assert call(f"{second}ReadTag", out["tag"])["result"] == 7  # Python may pass it back
    with pytest.raises(hami.DataTypeError, match=r"\Aexpected an opaque value, got int"):
        call(f"{second}ReadTag", 7)
    with pytest.raises(hami.DataTypeError, match=r"\Aexpected golden.tag, got python.object"):
        call(f"{second}ReadTag", object())
    given = np.ones((2, 3), dtype=np.float32)
    out = call(f"S[{first}Share,{second}Scale(factor=3)]", given)
    assert hami.to_numpy(out["result"]).tolist() == [[3.0] * 3] * 2


@pytest.mark.parametrize("inner", TOOLCHAINS, ids=lambda made: f"around-{made.name}")
def test_a_native_container_runs_its_child(toolchain: Toolchain, golden: Golden, inner: Toolchain) -> None:
    add = golden(inner, "plain.c") + "Add"
    prefix = golden(toolchain)
    assert call(f"{prefix}Twice[{add}(step=5)]", 1)["result"] == 11
    assert call(f"{prefix}Twice[{prefix}Twice[{add}]]", 1)["result"] == 5
    assert call(f"{prefix}Each[{add}]", [1, 2, 3])["result"] == [2, 3, 4]
    assert call(f"{prefix}Each[Identity]", ["a"])["result"] == ["a"]
    with pytest.raises(hami.DataTypeError, match=r"\Aexpected an int"):
        call(f"{prefix}Each[{add}]", [1, "two"])
    with pytest.raises(hami.ConfigError, match="needs brackets"):
        call(f"{prefix}Twice", 1)


def test_a_native_container_passes_on_the_exception_of_a_python_child(toolchain: Toolchain, golden: Golden) -> None:
    class UserError(Exception):
        pass

    @hami.register
    class AbiRaises(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            raise UserError("as it was raised")

    prefix = golden(toolchain)
    for expression in (f"{prefix}Twice[AbiRaises]", f"{prefix}Each[AbiRaises]"):
        with pytest.raises(UserError, match="as it was raised"):
            call(expression, [1])


def test_a_native_container_inherits_range_and_thread_of_its_child(toolchain: Toolchain, golden: Golden) -> None:
    prefix = golden(toolchain)
    with hami.pipe({"node": {"backend": f"{prefix}Twice[{prefix}Pairs]"}}) as pipe:
        assert max(item["result"] for item in pipe([{"data": i} for i in range(9)])) <= 2
    with pytest.raises(hami.ConfigError, match="max"):
        call(f"{prefix}Twice[{prefix}Pairs]", 1, max=3)
    assert call(f"{prefix}Twice[{prefix}OwnThread]", 1)["result"] is True


def test_dedicated_and_serialized_backends_never_run_concurrently(toolchain: Toolchain, golden: Golden) -> None:
    prefix = golden(toolchain)
    with ThreadPoolExecutor(8) as threads:
        for name in ("OwnThread", "OneAtATime"):
            with hami.pipe(prefix + name) as pipe:
                assert all(out["result"] for out in threads.map(lambda n: pipe({"data": n}), range(200)))
