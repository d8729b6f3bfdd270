"""A native plugin implements a name for CPU memory and for devices, and the core chooses by where `data` lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import HERE, Toolchain

Build = Callable[..., Path]
TOY, CUDA, METAL = 12, 2, 8  # types of devices in DLPack


class On:
    """A tensor that claims to be on a device."""

    def __init__(self, kind: int, index: int = 0) -> None:
        self.device = kind, index

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("not on the CPU")


@pytest.fixture
def prefix(toolchain: Toolchain, build: Build) -> str:
    hami.native.register_plugin(build(toolchain, HERE / "plugins" / "by_device.cpp"))
    return toolchain.prefix


def run(config: Any, *data: Any) -> list[Any]:
    with hami.pipe(config) as pipe:
        return [request["result"] for request in pipe([{"data": each} for each in data])]


def batch(backend: str, **keys: Any) -> dict[str, Any]:
    return {"backend": backend, "max": 4, "batching": "greedy", **keys}


def test_each_request_goes_where_its_data_lies(prefix: str) -> None:
    data = [On(TOY), 0, On(CUDA, 1), On(TOY), [0, On(TOY)], {"x": On(TOY, 3)}]
    assert run(batch(f"{prefix}Each(step=2)", max=6), *data) == [
        ["ext_dev:0", 2, 3],
        ["cpu", 2, 1],
        ["cuda:1", 2, 1],
        ["ext_dev:0", 2, 3],
        ["ext_dev:0", 2, 3],
        ["ext_dev:3", 2, 1],
    ]


def test_a_batch_on_several_devices_runs_request_by_request_where_the_class_needs_the_whole_batch(prefix: str) -> None:
    assert run(batch(f"{prefix}Batch"), On(TOY), On(TOY)) == [["ext_dev:0", 1, 2]] * 2
    assert run(batch(f"{prefix}Batch"), On(TOY), 0) == [["ext_dev:0", 1, 1], ["cpu", 1, 1]]
    with pytest.raises(hami.BatchError) as raised:
        run(batch(f"{prefix}Batch", on_batch_error="fail"), 0, On(TOY), On(TOY, 1))
    assert str(raised.value.errors[0][1]).split("\n")[0] == (
        f"{prefix}Batch takes batches on one device, got data on cpu, ext_dev:0, ext_dev:1 in one batch"
    )


def test_data_in_cpu_memory_goes_to_the_device_of_the_engine(prefix: str) -> None:
    class Announces(hami.Backend):
        device: str = "ext_dev:2"

        def init(self, options: Any) -> None:
            entry = {"name": "x", "dtype": "int8", "shape": None, "device": self.device, "batch_axis": True}
            options["engine_inputs"] = [entry]

        def forward(self, batch: Any) -> None:
            for item in batch:
                item["result"] = item["data"]

    hami.register(f"{prefix}Announces")(Announces)
    assert run(f"S[{prefix}Engine,{prefix}Announces]", 0, On(TOY)) == [["ext_dev:2", 1, 1], ["ext_dev:0", 1, 1]]
    assert run(f"S[{prefix}Engine,{prefix}Announces(device=cpu)]", 0) == [["cpu", 1, 1]]
    assert run(f"S[{prefix}Each,{prefix}Announces]", 0) == [["cpu", 1, 1]]


def test_a_device_without_an_implementation_is_an_error_of_the_request(prefix: str) -> None:
    with hami.pipe(f"{prefix}Each") as pipe, pytest.raises(hami.DataTypeError) as raised:
        pipe({"data": On(METAL)})
    assert str(raised.value).split("\n")[0] == (
        f"{prefix}Each cannot take data on metal:0: no installed plugin has {prefix}Each for metal"
    )


def test_an_implementation_for_a_device_replaces_no_name(prefix: str) -> None:
    assert hami.backends()[f"{prefix}Each"].doc == "Tell where each request runs."
