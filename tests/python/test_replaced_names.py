"""A plugin of this project takes over names of another one, except where `device` is not one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hami
import pytest
from conftest import Site
from hami import _core
from hami._plugins.lookup import _find
from hami._plugins.manager import PluginManager

MODULE = """
import hami, pluggy

hookimpl = pluggy.HookimplMarker("hami")


class {name}(hami.Backend):
    device: str = "cuda"

    def forward(self, batch):
        for item in batch:
            item["result"] = ("{owner}", self.device)


@hookimpl
def hami_register(registry):
    registry.add({name})
"""


def install(folder: Path, owner: str, name: str, groups: str = "") -> None:
    """Install a distribution with one backend."""
    module = owner.replace("-", "_") + "_fake"
    (folder / f"{module}.py").write_text(MODULE.format(name=name, owner=owner))
    info = folder / f"{owner.replace('-', '_')}-2.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {owner}\nVersion: 2.0.0\n")
    entries = f"[hami.backends]\n{name} = {module}\n[hami]\n{module} = {module}\n{groups.format(module=module)}"
    (info / "entry_points.txt").write_text(entries)


REPLACES = "[hami.devices]\ncuda = {module}\n[hami.replaces]\nhami-torch = {module}\n"


@pytest.fixture
def plugins(site: Site) -> Iterator[PluginManager]:
    install(site.folder, "hami-torch", "ScaleTensor")
    install(site.folder, "hami-cuda", "ScaleTensor", REPLACES)
    found = site.plugins()
    _core.set_finder(found.find)
    yield found
    _core.set_finder(_find)


def result(config: object) -> tuple[str, str]:
    with hami.pipe(config) as pipe:
        found: tuple[str, str] = pipe({"data": 0})["result"]
        return found


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("ScaleTensor", ("hami-cuda", "cuda")),
        ("ScaleTensor(device=cuda:1)", ("hami-cuda", "cuda:1")),
        ("ScaleTensor(device=cpu)", ("hami-torch", "cpu")),
        ({"backend": "ScaleTensor", "device": "cpu"}, ("hami-torch", "cpu")),
        ({"backend": "ScaleTensor", "ScaleTensor.device": "cpu"}, ("hami-torch", "cpu")),
        ({"backend": "ScaleTensor(device=cuda)", "device": "cpu"}, ("hami-cuda", "cuda")),
        ({"global": {"device": "CPU"}, "n": {"backend": "ScaleTensor"}}, ("hami-torch", "CPU")),
        ("hami-torch::ScaleTensor", ("hami-torch", "cuda")),
        ("hami-cuda::ScaleTensor(device=cpu)", ("hami-cuda", "cpu")),
        ({"providers": {"ScaleTensor": "hami-torch"}, "n": {"backend": "ScaleTensor"}}, ("hami-torch", "cuda")),
    ],
)
@pytest.mark.usefixtures("plugins")
def test_the_configured_device_decides_who_has_the_name(config, expected):
    assert result(config) == expected


def test_both_forms_are_listed(plugins):
    found = plugins.backends(load=True)
    assert (found["ScaleTensor"].owner, found["hami-torch::ScaleTensor"].owner) == ("hami-cuda", "hami-torch")
    remarks = {record.distribution: record.remarks for record in plugins.records()}
    assert remarks["hami-cuda"] == ()
    assert remarks["hami-torch"] == (
        "hami-cuda has ScaleTensor on its devices; write hami-torch::ScaleTensor for that of hami-torch",
    )


def test_alone_each_plugin_has_the_name_on_all_devices(site: Site):
    install(site.folder, "hami-cuda", "ScaleTensor", REPLACES)
    plugins = site.plugins()
    assert plugins.find("ScaleTensor", device="cpu").owner == "hami-cuda"
    assert plugins.find("ScaleTensor").owner == "hami-cuda"


def test_a_third_plugin_of_the_name_stays_an_error(site: Site):
    install(site.folder, "hami-torch", "ScaleTensor")
    install(site.folder, "hami-cuda", "ScaleTensor", REPLACES)
    install(site.folder, "acme-scale", "ScaleTensor")
    with pytest.raises(hami.PluginError) as raised:
        site.plugins().find("ScaleTensor")
    assert raised.value.headline.startswith('backend "ScaleTensor" is provided by hami-cuda and acme-scale; ')


def test_other_projects_cannot_take_over_a_name(site: Site):
    install(site.folder, "hami-torch", "ScaleTensor")
    install(site.folder, "acme-cuda", "ScaleTensor", REPLACES)
    with pytest.raises(hami.PluginError) as raised:
        site.plugins().find("ScaleTensor")
    assert raised.value.headline.startswith('backend "ScaleTensor" is provided by hami-torch and acme-cuda; ')


def test_a_disabled_plugin_replaces_nothing(site: Site):
    install(site.folder, "hami-torch", "ScaleTensor")
    install(site.folder, "hami-cuda", "ScaleTensor", REPLACES)
    assert site.plugins("no:hami_cuda_fake").find("ScaleTensor").owner == "hami-torch"
