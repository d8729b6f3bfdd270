"""Configurations that extend others: merging, replacement, file look-up and errors."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import Site
from hami._config import load
from hami._plugins import manager


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write files into the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(**files: str) -> None:
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.toml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


def message(source: Any) -> str:
    with pytest.raises(hami.ConfigError) as caught:
        load(source)
    return str(caught.value)


BASE = """\
entrypoint = "Forward[node.det]"
requires = ["hami-core"]

[global]
device = "cpu"
root = "/models"

[providers]
A = "hami-a"

[det]
init = "List[X]"
backend = "S[A,B]"
max = 4
"A.size" = [640, 480]

[det.B]
model = "b.onnx"
"""

OWN = """\
extends = "base.toml"
dag_entrypoint = "DagDispatcher"
requires = []

[global]
device = "gpu"

[providers]
B = "hami-b"

[det]
node_entrypoint = "List[Y]"
max = 8
A.size = [320]

[rec]
backend = "C"
"""


def test_tables_are_merged_key_by_key_and_anything_else_is_replaced(write: Any) -> None:
    write(base=BASE, own=OWN)
    loaded = load("own.toml")
    assert loaded.nodes == {
        "det": {
            "backend": "S[A,B]",
            "max": 8,
            "A.size": [320],
            "B.model": "b.onnx",
            "node_entrypoint": "List[Y]",
        },
        "rec": {"backend": "C"},
    }
    assert loaded.globals == {"device": "gpu", "root": "/models"}
    assert loaded.providers == {"A": "hami-a", "B": "hami-b"}
    assert (loaded.entrypoint, loaded.dag_entrypoint) == ("Forward[node.det]", "DagDispatcher")
    assert loaded.requires == []
    assert list(loaded.nodes) == ["det", "rec"]


def test_every_key_keeps_the_file_and_line_of_its_origin(write: Any) -> None:
    write(base=BASE, own=OWN)
    loaded = load("own.toml")
    assert loaded.files == ("base.toml", "own.toml")
    assert loaded.where == {
        ("global", ""): "own.toml:5",
        ("global", "device"): "own.toml:6",
        ("global", "root"): "base.toml:6",
        ("det", ""): "own.toml:11",
        ("det", "node_entrypoint"): "own.toml:12",
        ("det", "backend"): "base.toml:13",
        ("det", "max"): "own.toml:13",
        ("det", "A.size"): "own.toml:14",
        ("det", "B.model"): "base.toml:18",
        ("rec", ""): "own.toml:16",
        ("rec", "backend"): "own.toml:17",
        ("", "entrypoint"): "base.toml:1",
        ("", "dag_entrypoint"): "own.toml:2",
        ("", "providers.A"): "base.toml:9",
        ("", "providers.B"): "own.toml:9",
    }


def test_a_mistake_in_a_base_names_the_base(write: Any) -> None:
    write(base='[det]\nbackend = "Identity"\ninstance_num = "two"\n', own='extends = "base.toml"\n')
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe("own.toml")
    assert str(caught.value) == (
        'parameter "instance_num" of InstancesRegister takes int from 0 to 65536 or "auto", got "two"\n'
        '  in  instance_num = "two"   (node "det", base.toml:3)\n'
        "      ^^^^^^^^^^^^"
    )


def test_a_pipe_of_extended_files_runs(write: Any) -> None:
    write(base='[a]\nbackend = "Identity"\nmax = 2\n', own='extends = "base.toml"\n[a]\nmax = 4\n')
    with hami.pipe("own.toml") as pipe:
        assert pipe({"data": 3})["result"] == 3


def test_a_flat_file_extends_a_flat_file(write: Any) -> None:
    write(base='backend = "Identity"\nmax = 2\n', own='extends = "base.toml"\nmax = 4\n')
    assert load("own.toml").nodes == {"default": {"backend": "Identity", "max": 4}}


def test_paths_are_relative_to_the_file_that_contains_them(write: Any, tmp_path: Path) -> None:
    write(
        conf__own='extends = "parts/base.toml"\n[a]\nz = 3\n',
        conf__parts__base='extends = "../root.toml"\n[a]\ny = 2\n',
        conf__root='[a]\nbackend = "X"\nx = 1\n',
    )
    loaded = load("conf/own.toml")
    assert loaded.nodes == {"a": {"backend": "X", "x": 1, "y": 2, "z": 3}}
    assert loaded.where["a", "x"] == "conf/parts/../root.toml:3"
    assert loaded.files == ("conf/parts/../root.toml", "conf/parts/base.toml", "conf/own.toml")
    write(absolute=f'extends = "{tmp_path}/conf/root.toml"\n')
    assert load("absolute.toml").nodes == {"a": {"backend": "X", "x": 1}}


def test_the_last_of_several_bases_has_precedence(write: Any) -> None:
    write(a="[n]\nx = 1\ny = 1\nz = 1\n", b="[n]\ny = 2\nz = 2\n", own='extends = ["a.toml", "b.toml"]\n[n]\nz = 3\n')
    assert load("own.toml").nodes == {"n": {"x": 1, "y": 2, "z": 3}}


def test_two_files_may_extend_the_same_file(write: Any) -> None:
    write(root="[n]\nx = 1\ny = 1\n", own='extends = ["a.toml", "b.toml"]\n')
    write(a='extends = "root.toml"\n[n]\ny = 2\n', b='extends = "root.toml"\n[n]\nz = 3\n')
    assert load("own.toml").nodes == {"n": {"x": 1, "y": 1, "z": 3}}  # all of b.toml overrides a.toml


def test_a_base_that_is_reachable_in_many_ways_is_read_once(write: Any) -> None:
    write(
        **{f"f{i}": f'extends = ["f{i + 1}.toml", "f{i + 1}.toml"]\n[n]\nk{i} = 1\n' for i in range(40)},
        f40="[n]\nx = 1\n",
    )
    assert len(load("f0.toml").nodes["n"]) == 41


def test_a_value_may_replace_a_table_and_a_table_a_value(write: Any) -> None:
    write(
        base='providers = 3\n[global]\nx = 1\n[a]\nbackend = "X"\n',
        own='extends = "base.toml"\nglobal = 3\n[providers]\nX = "d"\n',
    )
    assert (
        message("own.toml")
        == "global must be a table with keys for all nodes, got int 3\n  in  global = 3   (own.toml:2)\n      ^^^^^^"
    )


def test_a_dict_extends_files_of_the_current_folder(write: Any, tmp_path: Path) -> None:
    write(base='[a]\nbackend = "X"\nmax = 2\n')
    given: dict[str, Any] = {"extends": "base.toml", "a": {"max": 4}}
    loaded = load(given)
    assert loaded.nodes == {"a": {"backend": "X", "max": 4}}
    assert loaded.where == {("a", ""): "base.toml:1", ("a", "backend"): "base.toml:2"}
    assert given == {"extends": "base.toml", "a": {"max": 4}}


def test_a_packaged_pipeline_is_extended_by_its_name(write: Any, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install("acme-good")
    monkeypatch.setattr(manager, "installed", site.plugins())
    for name in ("acme-twice", "acme-good::acme-twice"):
        write(own=f'extends = "{name}"\n[add]\nmax = 2\n')
        loaded = load("own.toml")
        assert loaded.nodes == {"add": {"backend": "S[AcmeAdd,AcmeAdd]", "max": 2}}
        assert loaded.where["add", "backend"] == "acme_good/twice.toml:3"


def test_a_packaged_pipeline_extends_files_beside_it_also_in_an_archive(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fake_site import write_metadata

    with zipfile.ZipFile(tmp_path / "acme.zip", "w") as archive:
        archive.writestr("acme_zipped/__init__.py", "")
        archive.writestr("acme_zipped/base.toml", '[a]\nbackend = "Identity"\n')
        archive.writestr("acme_zipped/read.toml", 'extends = "base.toml"\n[a]\nmax = 2\n')
    write_metadata(tmp_path, "acme-zipped", "1.0", {"hami.pipelines": {"zipped": "acme_zipped:read.toml"}})
    monkeypatch.syspath_prepend(str(tmp_path / "acme.zip"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(manager, "installed", manager.PluginManager({}))
    loaded = load("zipped")
    assert loaded.nodes == {"a": {"backend": "Identity", "max": 2}}
    assert loaded.where["a", "backend"] == "acme_zipped/base.toml:2"


def test_the_environment_chooses_a_base(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write(small="[a]\nx = 1\n", large="[a]\nx = 2\n", own='extends = "${env:HAMI_TEST_SIZE:-small}.toml"\n')
    monkeypatch.delenv("HAMI_TEST_SIZE", raising=False)
    assert load("own.toml").nodes == {"a": {"x": 1}}
    monkeypatch.setenv("HAMI_TEST_SIZE", "large")
    assert load("own.toml").nodes == {"a": {"x": 2}}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"own": 'extends = "own.toml"\n'},
            """"own.toml" extends itself: own.toml -> own.toml
  in  extends = "own.toml"   (own.toml:1)
                ^^^^^^^^^^""",
        ),
        (
            {"own": 'extends = "a.toml"', "a": '\nextends = ["b.toml"]', "b": 'extends = "./a.toml"'},
            """"a.toml" extends itself: a.toml -> b.toml -> ./a.toml
  in  extends = "./a.toml"   (b.toml:1)
                ^^^^^^^^^^""",
        ),
        (
            {"own": 'extends = ["base.toml", "bsae.toml"]', "base": ""},
            """cannot read "bsae.toml": No such file or directory; did you mean "base.toml"?
  in  extends = ["base.toml", "bsae.toml"]   (own.toml:1)
                              ^^^^^^^^^^^""",
        ),
        (
            {"own": 'extends = "base"', "base": ""},
            """"base" is neither the name of a .toml file nor of a packaged pipeline
  in  extends = "base"   (own.toml:1)
                ^^^^^^""",
        ),
        (
            {"own": 'extends = "ocr"'},
            """pipeline "ocr" not found
  in  extends = "ocr"   (own.toml:1)
                ^^^^^
  it is provided by hami-ocr, which is not installed: pip install hami-ocr""",
        ),
        (
            {"own": "extends = 3"},
            """extends takes a file such as "base.toml", or a list of files, got int 3
  in  extends = 3   (own.toml:1)
                ^""",
        ),
        (
            {"own": 'extends = "${root}/base.toml"\n[global]\nroot = "."'},
            """${root} is not available in extends
  in  extends = "${root}/base.toml"   (own.toml:1)
                 ^^^^^^^
  use ${env:NAME}""",
        ),
        (
            {"own": 'extends = "nul\\u0000.toml"'},
            """cannot read "nul\0.toml": a path has no NUL character
  in  extends = "nul\\x00.toml"   (own.toml:1)
                ^^^^^^^^^^^^^^""",
        ),
        ({"own": 'extends = "base.toml"', "base": "[a"}, "base.toml:1: Expected ']' at the end of a table declaration"),
    ],
    ids=["itself", "cycle", "missing", "no suffix", "not installed", "not text", "key", "nul", "syntax"],
)
def test_a_base_that_cannot_be_read_is_an_error(
    files: dict[str, str], expected: str, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "installed", manager.PluginManager({"HAMI_PLUGINS": ""}))
    monkeypatch.setattr(manager.installed, "pipelines", dict)
    write(**files)
    assert message("own.toml") == expected


def test_all_bases_that_cannot_be_read_are_reported_at_once(write: Any) -> None:
    write(own='extends = ["a.toml", "b.toml", 3]\n[x]\ninit = "I"\nnode_entrypoint = "I"\n')
    assert message("own.toml").startswith("4 problems in the configuration\n\n")


def test_a_chain_of_too_many_files_is_an_error(write: Any) -> None:
    write(**{f"f{i}": f'extends = "f{i + 1}.toml"\n' for i in range(200)}, f200="[a]\n")
    assert message("f0.toml") == (
        'more than 50 files extend each other\n  in  extends = "f50.toml"   (f49.toml:1)\n                ^^^^^^^^^^'
    )


@pytest.mark.skipif(os.name != "posix", reason="links to files")
def test_a_cycle_through_a_symbolic_link_is_detected(write: Any, tmp_path: Path) -> None:
    write(own='extends = "other.toml"\n')
    (tmp_path / "other.toml").symlink_to("own.toml")
    assert message("own.toml").startswith('"own.toml" extends itself: own.toml -> other.toml\n')
