"""The sources that hami.pipe() accepts, and the configuration that the core gets."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import Site
from hami import _config
from hami._config import load
from hami._config.reader import LoadedConfig
from hami._plugins import manager


def config(nodes: dict[str, dict[str, Any]], **given: Any) -> LoadedConfig:
    rest: dict[str, Any] = {"entrypoint": None, "dag_entrypoint": None, "where": {}}
    rest |= {"globals": {}, "providers": {}, "requires": []}
    where = given.get("where", {}).items()
    rest["folders"] = {at: os.fsencode(Path(place).parent.resolve()) for at, place in where if at[1]}
    return LoadedConfig(nodes=nodes, **{**rest, **given})


def write(folder: Path, text: str | bytes, name: str = "pipeline.toml") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


WHOLE = """
entrypoint = "DagDispatcher"
dag_entrypoint = "DagDispatcher"
requires = []

[global]
device = "cpu"

[providers]
ResizeMat = "hami-image"

[det]
init = "List[InstancesRegister[Reflect]]"
backend = "S[A,B]"
max = 4
"A.size" = [640, 480]

[det.B]
model = "b.onnx"

[rec]
backend = "C"
"""


def test_a_file_is_read_with_the_place_of_every_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, WHOLE)
    monkeypatch.chdir(tmp_path)
    loaded = load("pipeline.toml")
    assert loaded == config(
        {
            "det": {
                "backend": "S[A,B]",
                "max": 4,
                "A.size": [640, 480],
                "B.model": "b.onnx",
                "node_entrypoint": "List[InstancesRegister[Reflect]]",
            },
            "rec": {"backend": "C"},
        },
        globals={"device": "cpu"},
        providers={"ResizeMat": "hami-image"},
        entrypoint="DagDispatcher",
        dag_entrypoint="DagDispatcher",
        where={
            ("", "entrypoint"): "pipeline.toml:2",
            ("", "dag_entrypoint"): "pipeline.toml:3",
            ("global", ""): "pipeline.toml:6",
            ("global", "device"): "pipeline.toml:7",
            ("", "providers.ResizeMat"): "pipeline.toml:10",
            ("det", ""): "pipeline.toml:12",
            ("det", "node_entrypoint"): "pipeline.toml:13",
            ("det", "backend"): "pipeline.toml:14",
            ("det", "max"): "pipeline.toml:15",
            ("det", "A.size"): "pipeline.toml:16",
            ("det", "B.model"): "pipeline.toml:19",
            ("rec", ""): "pipeline.toml:21",
            ("rec", "backend"): "pipeline.toml:22",
        },
        files=("pipeline.toml",),
    )


def test_a_flat_file_given_as_a_path_is_one_node(tmp_path: Path) -> None:
    path = write(tmp_path, 'backend = "Identity"\r\nmax = 2\r\n', "any.conf")
    assert load(path) == config(
        {"default": {"backend": "Identity", "max": 2}},
        where={("default", ""): f"{path}:1", ("default", "backend"): f"{path}:1", ("default", "max"): f"{path}:2"},
        files=(str(path),),
    )


def test_a_dict_of_dicts_defines_nodes() -> None:
    given = {"a": {"backend": "X", "Y": {"z": 1, "deep": {"er": 2}}}, "b": {"backend": "Z"}}
    assert load(given) == config({"a": {"backend": "X", "Y.z": 1, "Y.deep.er": 2}, "b": {"backend": "Z"}})


def test_a_flat_dict_is_one_node() -> None:
    given = {"backend": "X", "max": 4, "model": Path("m.onnx"), "names": ("a", Path("b")), "post": None}
    flat = {"backend": "X", "max": 4, "model": "m.onnx", "names": ["a", "b"], "post": None}
    assert load(given) == config({"default": flat})


def test_reserved_names_are_not_node_keys() -> None:
    given = {
        "backend": "X",
        "entrypoint": "E",
        "global": {"k": 1.5},
        "providers": {"X": "d"},
        "requires": ["pluggy>=1"],
    }
    assert load(given) == config(
        {"default": {"backend": "X"}}, entrypoint="E", globals={"k": 1.5}, providers={"X": "d"}, requires=["pluggy>=1"]
    )


def test_the_callers_config_is_never_modified() -> None:
    given = {"global": {"init": "g"}, "a": {"init": "I", "backend": "X", "Y": {"z": [1]}}}
    before = copy.deepcopy(given)
    loaded = load(given)
    loaded.nodes["a"]["Y.z"].append(2)
    loaded.globals["more"] = 1
    assert given == before


@pytest.mark.parametrize(
    "text", ["S[A,B]", "Identity", "Log(x)", "hami-image::ResizeMat[X]", "TensorrtTensor", "S[A", ""]
)
def test_text_is_an_expression(text: str) -> None:
    assert load(text) == config({"default": {"backend": text}})


def test_text_is_a_packaged_pipeline_if_no_backend_has_that_name(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other text is an expression if its head is a known backend, and the name of a packaged pipeline otherwise."""
    site.install("acme-good")
    monkeypatch.setattr(manager, "installed", site.plugins())
    twice = config(
        {"add": {"backend": "S[AcmeAdd,AcmeAdd]"}},
        where={("add", ""): "acme_good/twice.toml:2", ("add", "backend"): "acme_good/twice.toml:3"},
        files=("acme_good/twice.toml",),
        folders={("add", "backend"): os.fsencode(site.folder.resolve() / "acme_good")},
    )
    assert load("acme-twice") == twice
    assert load("acme-good::acme-twice") == twice
    assert load("acme-twice", known_backend=lambda name: True) == config({"default": {"backend": "acme-twice"}})
    assert load("AcmeExtra") == config({"default": {"backend": "AcmeExtra"}})  # only the hook of the plugin defines it
    assert load("acme-good::AcmeAdd") == config({"default": {"backend": "acme-good::AcmeAdd"}})


def test_reading_a_packaged_pipeline_imports_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    site.install("acme-good")
    (site.folder / "acme_good" / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.setattr(manager, "installed", site.plugins())
    assert load("acme-twice").nodes == {"add": {"backend": "S[AcmeAdd,AcmeAdd]"}}
    assert "acme_good" not in sys.modules


def test_a_loaded_configuration_can_be_loaded_again() -> None:
    loaded = load({"backend": "X"})
    assert load(loaded) is loaded


def test_numbers_of_numpy_become_python_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    given = {"a": numpy.int64(3), "b": numpy.float64(0.5), "c": numpy.array(2.5), "d": numpy.array(2), "e": numpy.True_}
    loaded = load({"backend": "X", **given})
    assert loaded.nodes["default"] == {"backend": "X", "a": 3, "b": 0.5, "c": 2.5, "d": 2, "e": True}
    assert [type(loaded.nodes["default"][key]) for key in "acde"] == [int, float, int, bool]


class Several:
    """Like an array of several numbers: it has an `__index__`, but is not a number and has no truth value."""

    shape = (2,)

    def __index__(self) -> int:
        raise TypeError("only integer scalar arrays can be converted to a scalar index")

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    def __repr__(self) -> str:
        return "several"


@pytest.mark.parametrize(("value", "shown"), [(Several(), "Several several"), (int, "type <class 'int'>")])
def test_a_value_that_only_resembles_a_number_is_rejected(value: object, shown: str) -> None:
    with pytest.raises(hami.ConfigError) as caught:
        load({"backend": "X", "a": value, "requires": value})
    first, second = (str(problem).partition("\n")[0] for problem in caught.value.problems)
    assert first == f'requires must be a list such as ["hami-trt>=2.0"], got {shown}'
    assert second == f'"a" of node "default" takes text, numbers, booleans or lists of them, got {shown}'


def test_a_name_of_the_core_is_resolved_without_reading_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = manager.PluginManager({})
    monkeypatch.setattr(manager, "installed", fresh)
    _config.load("Identity")
    _config.load("S[Anything]")
    assert fresh._index is None
