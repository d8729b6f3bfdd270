"""What hami.pipe() accepts, what the core gets of it, and what is said of a configuration that is wrong."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import Site
from hami import _config, _plugins
from hami._config import load, read
from hami._config_reader import LoadedConfig


def config(nodes: dict[str, dict[str, Any]], **given: Any) -> LoadedConfig:
    rest: dict[str, Any] = {"entrypoint": None, "dag_entrypoint": None, "where": {}}
    rest |= {"globals": {}, "providers": {}, "requires": []}
    return LoadedConfig(nodes=nodes, **{**rest, **given})


def problems_of(source: Any) -> list[str]:
    return [str(problem) for problem in read(source)[1]]


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


def test_a_path_object_and_a_flat_file_work(tmp_path: Path) -> None:
    path = write(tmp_path, 'backend = "Identity"\r\nmax = 2\r\n', "any.conf")
    assert load(path) == config(
        {"default": {"backend": "Identity", "max": 2}},
        where={("default", ""): f"{path}:1", ("default", "backend"): f"{path}:1", ("default", "max"): f"{path}:2"},
        files=(str(path),),
    )


def test_a_dict_of_dicts_is_nodes() -> None:
    given = {"a": {"backend": "X", "Y": {"z": 1, "deep": {"er": 2}}}, "b": {"backend": "Z"}}
    assert load(given) == config({"a": {"backend": "X", "Y.z": 1, "Y.deep.er": 2}, "b": {"backend": "Z"}})


def test_a_flat_dict_is_one_node() -> None:
    given = {"backend": "X", "max": 4, "model": Path("m.onnx"), "names": ("a", Path("b")), "post": None}
    flat = {"backend": "X", "max": 4, "model": "m.onnx", "names": ["a", "b"], "post": None}
    assert load(given) == config({"default": flat})


def test_reserved_names_are_no_node_keys() -> None:
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
    """Another string is an expression if its head is a known backend, else the name of a packaged pipeline."""
    site.install("acme-good")
    monkeypatch.setattr(_plugins, "installed", site.plugins())
    twice = config(
        {"add": {"backend": "S[AcmeAdd,AcmeAdd]"}},
        where={("add", ""): "acme_good/twice.toml:2", ("add", "backend"): "acme_good/twice.toml:3"},
        files=("acme_good/twice.toml",),
    )
    assert load("acme-twice") == twice
    assert load("acme-good::acme-twice") == twice
    assert load("acme-twice", known_backend=lambda name: True) == config({"default": {"backend": "acme-twice"}})
    assert load("AcmeExtra") == config({"default": {"backend": "AcmeExtra"}})  # only the plugin's hook knows it
    assert load("acme-good::AcmeAdd") == config({"default": {"backend": "acme-good::AcmeAdd"}})


def test_reading_a_packaged_pipeline_imports_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    site.install("acme-good")
    (site.folder / "acme_good" / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.setattr(_plugins, "installed", site.plugins())
    assert load("acme-twice").nodes == {"add": {"backend": "S[AcmeAdd,AcmeAdd]"}}
    assert "acme_good" not in sys.modules


def test_what_was_loaded_can_be_loaded_again() -> None:
    loaded = load({"backend": "X"})
    assert load(loaded) is loaded


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "hami.pipe takes a path, a dict, an expression or the name of a packaged pipeline, got int"),
        (["a"], "hami.pipe takes a path, a dict, an expression or the name of a packaged pipeline, got list"),
        ({}, 'a configuration needs at least one node, as [node] with backend = "…"'),
        ({"global": {}}, 'a configuration needs at least one node, as [node] with backend = "…"'),
        (
            {"a b": {}},
            """"a b" is no node name: letters, digits, _ and - only
  in  [a b]
      ^^^^^""",
        ),
        (
            {"a.b": {}},
            """"a.b" is no node name: letters, digits, _ and - only
  in  [a.b]
      ^^^^^""",
        ),
        (
            {"": {}},
            """"" is no node name: letters, digits, _ and - only
  in  [""]
      ^^^^""",
        ),
        (
            {3: {}},
            """3 is no node name: letters, digits, _ and - only
  in  [3]
      ^^^""",
        ),
        (
            {"a": {}, "provider": {}, "globl": "E"},
            """unknown top-level key "globl"; did you mean "global"?
  in  globl = "E"
      ^^^^^
  a node is a table, [node]; a key for all nodes goes into [global]""",
        ),
        (
            {"a": {}, "zzz": 1},
            """unknown top-level key "zzz"
  in  zzz = 1
      ^^^
  a node is a table, [node]; a key for all nodes goes into [global]""",
        ),
        (
            {"a": {}, "global": 3},
            """global is a table of keys for all nodes, got int 3
  in  global = 3
      ^^^^^^""",
        ),
        (
            {"a": {}, "entrypoint": 3},
            """entrypoint is an expression, got int 3
  in  entrypoint = 3
      ^^^^^^^^^^""",
        ),
        (
            {"a": {}, "providers": "x"},
            """providers is a table, as ResizeMat = "hami-image", got "x"
  in  providers = "x"
      ^^^^^^^^^""",
        ),
        (
            {"a": {}, "providers": {"X": 3}},
            """providers: "X" is given the name of a package, got int 3
  in  providers.X = 3
      ^^^^^^^^^^^""",
        ),
        (
            {"a": {}, "requires": "x"},
            """requires is a list, as ["hami-trt>=0.3"], got "x"
  in  requires = "x"
      ^^^^^^^^""",
        ),
        (
            {"a": {}, "requires": ["x y"]},
            """requires takes a package and version bounds, as "hami-trt>=0.3,<2", got 'x y'
  in  requires = ["x y"]
                  ^^^^^""",
        ),
        (
            {"a": {}, "requires": ["pluggy>=1", 3]},
            """requires takes a package and version bounds, as "hami-trt>=0.3,<2", got 3
  in  requires = ["pluggy>=1", 3]
                               ^""",
        ),
        (
            {"a": {}, "requires": ["acme-none>=0.3"]},
            """requires acme-none>=0.3, which is not installed: pip install "acme-none>=0.3"
  in  requires = ["acme-none>=0.3"]
                  ^^^^^^^^^^^^^^^^""",
        ),
        (
            {"a": {}, "requires": ["hami_core>=99"]},
            f"""requires hami_core>=99, but hami_core {hami.__version__} is installed: pip install "hami_core>=99"
  in  requires = ["hami_core>=99"]
                  ^^^^^^^^^^^^^^^""",
        ),
        ({"a": {3: "x"}}, 'a key of node "a" is not text: int 3'),
        (
            {"a": {"X.k": 1, "X": {"k": 2}}},
            """"X.k" of node "a" is given twice
  in  X.k = 2   (node "a")
      ^^^""",
        ),
        (
            {"a": {"init": "I", "node_entrypoint": "N"}},
            """node "a" has init and node_entrypoint, which are the same key
  in  init = "I"   (node "a")
      ^^^^
  remove one of them""",
        ),
        (
            {"a": {"k": {1, 2}}},
            """"k" of node "a" takes text, numbers, booleans or lists of them, got set {1, 2}
  in  k = {1, 2}   (node "a")
      ^""",
        ),
        (
            {"a": {"k": b"x" * 61}},
            f""""k" of node "a" takes text, numbers, booleans or lists of them, got bytes
  in  k = b'{"x" * 61}'   (node "a")
      ^""",
        ),
        (
            {"a": {"k": 1 << 63}},
            """"k" of node "a" has more than the 64 bits of a whole number
  in  k = 9223372036854775808   (node "a")
      ^""",
        ),
        (
            {"global": {"k": "\ud800"}, "a": {}},
            """"k" of [global] holds half a surrogate pair, which is no text
  in  k = "\\ud800"   ([global])
      ^""",
        ),
        ({"a": {"\udc80": 1}}, 'a key of node "a" is not text: "\\udc80"'),
    ],
)
def test_what_is_wrong_with_a_dict(source: Any, message: str) -> None:
    with pytest.raises(hami.ConfigError) as caught:
        load(source)
    assert str(caught.value) == message
    assert caught.value.problems == [caught.value]


def test_all_problems_are_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'speed = 1\nrequires = ["acme-none"]\n[a]\nk = 07:32:00\n["b c"]\n[d]\ninit = "I"\nnode_entrypoint = "N"\n'
    write(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    expected = [
        """node "d" has init and node_entrypoint, which are the same key
  in  init = "I"   (node "d", pipeline.toml:7)
      ^^^^
  remove one of them""",
        """"b c" is no node name: letters, digits, _ and - only
  in  [b c]   (pipeline.toml:5)
      ^^^^^""",
        """unknown top-level key "speed"
  in  speed = 1   (pipeline.toml:1)
      ^^^^^
  a node is a table, [node]; a key for all nodes goes into [global]""",
        """requires acme-none, which is not installed: pip install "acme-none"
  in  requires = ["acme-none"]   (pipeline.toml:2)
                  ^^^^^^^^^^^""",
        """"k" of node "a" takes text, numbers, booleans or lists of them, got time datetime.time(7, 32)
  in  k = datetime.time(7, 32)   (node "a", pipeline.toml:4)
      ^""",
    ]
    assert problems_of("pipeline.toml") == expected
    with pytest.raises(hami.ConfigError) as caught:
        load("pipeline.toml")
    assert str(caught.value) == "\n\n".join(["5 problems in the configuration", *expected])
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[a]\nbackend "X"\n',
            "pipeline.toml:2: Expected '=' after a key in a key/value pair\n  backend \"X\"\n          ^",
        ),
        ("[a\n", "pipeline.toml:1: Expected ']' at the end of a table declaration\n  [a\n    ^"),
        ("a = 1\na = 2", "pipeline.toml:2: Cannot overwrite a value"),
        ("[a]\nk = [1\n", "pipeline.toml:2: Unclosed array"),
        (b"[a]\nk = '\xff'\n", "pipeline.toml:2: not UTF-8 text, which TOML files are (byte 9)"),
        ("a = " + "[" * 100_000, "pipeline.toml: nested too deeply"),
        ("", 'a configuration needs at least one node, as [node] with backend = "…"   (pipeline.toml)'),
        ("[a]\nk = '\0'\n", "pipeline.toml:2: a NUL character, which TOML files never have"),
        ("[a]\n[b]\n[a]\n", "pipeline.toml:3: Cannot declare ('a',) twice\n  [a]\n    ^"),
        ("[a]\n" + ".".join("k" * 101) + " = 1\n", "pipeline.toml:2: a key has 100 dots or more"),
    ],
)
def test_what_is_no_toml(text: str | bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(hami.ConfigError) as caught:
        load("pipeline.toml")
    assert str(caught.value).rstrip() == message


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "", "pipeline.toml")
    (tmp_path / "folder.toml").mkdir()
    monkeypatch.chdir(tmp_path)
    for name, message in [
        ("pipelin.toml", 'cannot read "pipelin.toml": No such file or directory; did you mean "pipeline.toml"?'),
        (
            "none/x.toml",
            f'cannot read "none/x.toml": No such file or directory (looked for {tmp_path}/none/x.toml)',
        ),
        (f"{tmp_path}/x.toml", f'cannot read "{tmp_path}/x.toml": No such file or directory'),
        ("folder.toml", 'cannot read "folder.toml": Is a directory'),
        ("nul\0.toml", 'cannot read "nul\0.toml": embedded null byte'),
    ]:
        with pytest.raises(hami.ConfigError) as caught:
            load(name)
        assert str(caught.value) == message


def test_a_file_that_is_no_toml_by_name_is_no_expression(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "{}", "pipeline.json")
    (tmp_path / "conf").mkdir()
    write(tmp_path / "conf", "{}", "p.yaml")
    monkeypatch.chdir(tmp_path)
    for name in ("pipeline.json", "conf/p.yaml"):
        with pytest.raises(hami.ConfigError) as caught:
            load(name)
        assert str(caught.value) == f'"{name}" is no expression; a configuration file ends in .toml'


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    loaded = load({"backend": "X", "a": numpy.int64(3), "b": numpy.float64(0.5)})
    assert loaded.nodes["default"] == {"backend": "X", "a": 3, "b": 0.5}
    assert type(loaded.nodes["default"]["a"]) is int


def test_a_name_known_to_the_core_needs_no_look_at_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = _plugins.Plugins({})
    monkeypatch.setattr(_plugins, "installed", fresh)
    _config.load("Identity")
    _config.load("S[Anything]")
    assert fresh._index is None
