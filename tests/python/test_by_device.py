"""A request whose data lies on a device goes to the implementation that a plugin registered for the device."""

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
from hami._plugins.lookup import _find, _find_for_device


class Host(hami.Backend):
    thread = "concurrent"
    by_device = True
    axis: int = -1

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = ("cpu", self.axis, len(batch))


for name in ("Where", "Length", "Elsewhere"):
    hami.register(name)(Host)


@pytest.fixture
def device(site: Site) -> Iterator[Any]:
    """The module of the installed plugin acme-device."""
    site.install("acme-device")
    plugins = site.plugins()
    _core.set_finder(plugins.find)
    _core.set_device_finder(plugins.find_for_device)
    yield importlib.import_module("acme_device")
    _core.set_finder(_find)
    _core.set_device_finder(_find_for_device)


def first_line(raised: Any) -> str:
    return str(raised.value).split("\n")[0]


def test_data_on_a_device_goes_to_the_implementation_with_the_parameters(device: Any) -> None:
    with hami.pipe("Where(axis=1)") as pipe:
        assert pipe({"data": device.OnDevice("a")})["result"] == ("cuda:0", 1, ["a"])
        assert pipe({"data": device.OnDevice("b", 3)})["result"] == ("cuda:3", 1, ["b"])
        assert pipe({"data": [device.OnDevice("c"), device.OnDevice("d")]})["result"][2] == ["c", "d"]
        assert pipe({"data": {"x": device.OnDevice("e")}})["result"][2] == ["e"]
        assert pipe({"data": b"f"})["result"] == ("cpu", 1, 1)
        assert pipe({})["result"] == ("cpu", 1, 1)
    assert device.Where.built == [("cuda:0", 0), ("cuda:3", 0)]


def test_an_implementation_is_built_when_the_first_data_on_its_device_arrives(device: Any) -> None:
    with hami.pipe("S[Where,Where]") as pipe:
        pipe({"data": 0})
    assert device.Where.built == []


def test_one_batch_may_have_data_on_several_devices(device: Any) -> None:
    data = [device.OnDevice("a"), 0, device.OnDevice("b", 1), device.OnDevice("c")]
    with hami.pipe({"backend": "Where", "max": 4, "batching": "greedy"}) as pipe:
        requests = pipe([{"data": each} for each in data])
    assert [request["result"] for request in requests] == [
        ("cuda:0", -1, ["a", "c"]),
        ("cpu", -1, 1),
        ("cuda:1", -1, ["b"]),
        ("cuda:0", -1, ["a", "c"]),
    ]


def test_a_failure_of_an_implementation_fails_only_the_request_that_causes_it(device: Any) -> None:
    data = [device.OnDevice("a"), device.OnDevice("fails"), 0]
    with (
        hami.pipe({"backend": "Where", "max": 3, "batching": "greedy"}) as pipe,
        pytest.raises(hami.BatchError) as raised,
    ):
        pipe(requests := [{"data": each} for each in data])
    ((index, error),) = raised.value.errors
    assert (index, str(error).split("\n")[0]) == (1, "failed on ['fails']")
    assert requests[0]["result"][2] == ["a"]
    assert requests[2]["result"][0] == "cpu"


def test_several_threads_may_bring_the_first_device_data(device: Any) -> None:
    start = threading.Barrier(4)

    def ask(number: int) -> Any:
        start.wait(timeout=30)
        return pipe({"data": device.OnDevice(str(number))})["result"][2]

    with hami.pipe("Where") as pipe, ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(ask, range(4))) == [["0"], ["1"], ["2"], ["3"]]


def test_the_error_names_what_the_plugin_lacks(device: Any) -> None:
    with hami.pipe("Length") as pipe, pytest.raises(hami.PluginError) as raised:
        pipe({"data": device.OnDevice("a")})
    assert first_line(raised) == ('acme-device::Length, which serves cuda:0, has no parameter "axis", which Length has')
    with hami.pipe("Elsewhere") as pipe, pytest.raises(hami.DataTypeError) as missing:
        pipe({"data": device.OnDevice("a")})
    assert first_line(missing) == "Elsewhere cannot take data on cuda:0: no installed plugin has Elsewhere for cuda"


def test_an_object_that_does_not_know_its_device_stays_with_the_backend(device: Any) -> None:
    class Broken:
        def __dlpack_device__(self) -> Any:
            raise ValueError("lost")

    with hami.pipe("Where") as pipe:
        assert pipe({"data": Broken()})["result"][0] == "cpu"


def test_a_disabled_plugin_is_not_used(site: Site) -> None:
    site.install("acme-device")
    with pytest.raises(hami.BackendNotFound) as raised:
        site.plugins("-device").find_for_device("Where", "cuda")
    assert raised.value.headline == "no installed plugin has Where for cuda"
    assert site.plugins().find_for_device("Where", "cuda").owner == "acme-device"


def test_an_implementation_for_a_device_is_no_owner_of_the_bare_name(site: Site) -> None:
    site.install("acme-device")
    plugins = site.plugins()
    with pytest.raises(hami.BackendNotFound):
        plugins.find("Where")
    assert plugins.find("Where", "acme-device").device == "cuda"
    assert plugins.backends(load=True)["acme-device::Where"].owner == "acme-device"


def test_a_plugin_that_fails_is_named(site: Site) -> None:
    site.install("acme-device")
    (site.folder / "acme_device.py").write_text("raise RuntimeError('no driver')")
    with pytest.raises(hami.PluginError) as raised:
        site.plugins().find_for_device("Where", "cuda")
    assert 'backend "Where" is provided by acme-device 1.0.0, which failed to load' in raised.value.headline


def test_a_kind_of_device_must_be_declared(site: Site) -> None:
    site.install("acme-device")
    (entries,) = site.folder.glob("acme_device-*.dist-info/entry_points.txt")
    entries.write_text(entries.read_text().replace("cuda = acme_device\n", ""))
    plugins = site.plugins()
    (record,) = plugins.records(load=True)
    assert record.error == (
        'it implements Where for "cuda", which its metadata does not declare in the entry-point group hami.devices'
    )


@pytest.mark.parametrize("attribute", [{"non_blocking": True}, {"child_count": (1, 1)}])
def test_a_class_with_by_device_is_neither_non_blocking_nor_a_container(attribute: dict[str, Any]) -> None:
    with pytest.raises(hami.PluginError, match="a class with by_device = True is not non_blocking and has no brackets"):
        hami.register("Wrong")(type("Wrong", (Host,), attribute))
