"""Tensor backends of the core hand device memory to the plugin that declares the device in `hami.devices`."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hami
import pytest
from conftest import Site
from hami import _core
from hami._plugins.lookup import _find_for_device

np = pytest.importorskip("numpy", reason="numpy is not installed")


@pytest.fixture
def device(site: Site) -> Iterator[Any]:
    """The module of the installed plugin acme-device."""
    site.install("acme-device")
    plugins = site.plugins()
    _core.set_device_finder(plugins.find_for_device)
    yield importlib.import_module("acme_device")
    _core.set_device_finder(_find_for_device)


def first_line(raised: Any) -> str:
    return str(raised.value).split("\n")[0]


def test_data_in_device_memory_goes_to_the_plugin_with_the_parameters(device: Any) -> None:
    with hami.pipe("SoftmaxTensor(axis=1)") as pipe:
        assert pipe({"data": device.OnDevice("a")})["result"] == ("SoftmaxTensor", "cuda:0", 1, ["a"])
        assert pipe({"data": device.OnDevice("b", 3)})["result"] == ("SoftmaxTensor", "cuda:3", 1, ["b"])
        assert pipe({"data": [device.OnDevice("c"), device.OnDevice("d")]})["result"][3] == ["c", "d"]
        assert pipe({"data": {"x": device.OnDevice("e")}})["result"][3] == ["e"]
        assert pipe({"data": np.zeros((1, 2))})["result"].tolist() == [[0.5, 0.5]]
    assert device.Named.built == [("SoftmaxTensor", "cuda:0"), ("SoftmaxTensor", "cuda:3")]


def test_the_plugin_is_not_imported_before_the_first_device_data(device: Any) -> None:
    with hami.pipe("S[ContiguousTensor,SoftmaxTensor]") as pipe:
        pipe({"data": np.zeros((1, 2))})
    assert device.Named.built == []


def test_one_batch_may_have_data_on_several_devices(device: Any) -> None:
    data = [device.OnDevice("a"), np.zeros((1, 1)), device.OnDevice("b", 1), device.OnDevice("c")]
    with hami.pipe({"backend": "SoftmaxTensor", "max": 4, "batching": "greedy"}) as pipe:
        first, second, third, fourth = pipe([{"data": each} for each in data])
    assert first["result"] == fourth["result"] == ("SoftmaxTensor", "cuda:0", -1, ["a", "c"])
    assert second["result"].tolist() == [[1]]
    assert third["result"] == ("SoftmaxTensor", "cuda:1", -1, ["b"])


def test_a_batch_is_concatenated_and_split_by_the_plugin(device: Any) -> None:
    for backend in ("CatTensor(stack=true)", "SplitTensor(stack=true)"):
        with hami.pipe({"backend": backend, "max": 2, "batching": "greedy"}) as pipe:
            requests = pipe([{"data": device.OnDevice("a")}, {"data": device.OnDevice("b")}])
        name = backend.partition("(")[0]
        assert [request["result"] for request in requests] == [(name, "cuda:0", True, ["a", "b"])] * 2


def test_tensors_on_different_devices_are_not_concatenated(device: Any) -> None:
    config = {"backend": "CatTensor", "max": 3, "batching": "greedy"}
    data = [np.zeros((1, 1)), device.OnDevice("a"), device.OnDevice("b", 1)]
    with hami.pipe(config) as pipe:  # each request runs alone
        requests = pipe([{"data": each} for each in data])
        assert [request["result"][1] for request in requests[1:]] == ["cuda:0", "cuda:1"]
        assert requests[0]["result"].tolist() == [[0]]
    with hami.pipe({**config, "on_batch_error": "fail"}) as pipe, pytest.raises(hami.BatchError) as raised:
        pipe([{"data": each} for each in data])
    assert str(raised.value.errors[0][1]).split("\n")[0] == (
        "CatTensor cannot concatenate tensors on cpu, cuda:0, cuda:1 in one batch"
    )


def test_a_failure_of_the_plugin_fails_only_the_request_that_causes_it(device: Any) -> None:
    data = [device.OnDevice("a"), device.OnDevice("fails"), np.zeros((1, 1))]
    with (
        hami.pipe({"backend": "SoftmaxTensor", "max": 3, "batching": "greedy"}) as pipe,
        pytest.raises(hami.BatchError) as raised,
    ):
        pipe(requests := [{"data": each} for each in data])
    ((index, error),) = raised.value.errors
    assert (index, str(error).split("\n")[0]) == (1, "SoftmaxTensor failed on ['fails']")
    assert requests[0]["result"][3] == ["a"]
    assert requests[2]["result"].tolist() == [[1]]


def test_several_threads_may_bring_the_first_device_data(device: Any) -> None:
    start = threading.Barrier(4)

    def ask(number: int) -> Any:
        start.wait(timeout=30)
        return pipe({"data": device.OnDevice(str(number))})["result"][3]

    with hami.pipe("SoftmaxTensor") as pipe, ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(ask, range(4))) == [["0"], ["1"], ["2"], ["3"]]


def test_the_error_names_what_the_plugin_lacks(device: Any) -> None:
    with hami.pipe("ArgMaxTensor") as pipe, pytest.raises(hami.PluginError) as raised:
        pipe({"data": device.OnDevice("a")})
    assert first_line(raised) == (
        'acme-device::ArgMaxTensor, which serves cuda:0, has no parameter "axis", which ArgMaxTensor has'
    )
    with hami.pipe("FixTensor") as pipe, pytest.raises(hami.DataTypeError) as missing:
        pipe({"data": device.OnDevice("a")})
    assert first_line(missing) == ("FixTensor cannot take data on cuda:0: no installed plugin has FixTensor for cuda")


def test_a_disabled_plugin_is_not_used(site: Site) -> None:
    site.install("acme-device")
    with pytest.raises(hami.BackendNotFound) as raised:
        site.plugins("-device").find_for_device("CatTensor", "cuda")
    assert raised.value.headline == "no installed plugin has CatTensor for cuda"
    assert site.plugins().find_for_device("CatTensor", "cuda").owner == "acme-device"


def test_qualified_names_stay_what_they_are(device: Any) -> None:
    with hami.pipe("hami-core::SoftmaxTensor") as pipe:
        assert pipe({"data": device.OnDevice("a")})["result"][0] == "SoftmaxTensor"
