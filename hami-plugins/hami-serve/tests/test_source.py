"""Descriptions of components: files, folders, tables, and what is wrong with them."""

from __future__ import annotations

import hami
import pytest
from conftest import say

from hami_serve import AllRounder
from hami_serve.source import read_components


@hami.register
class TestVersion(hami.Backend):
    version: int

    def forward(self, batch):
        for item in batch:
            item["result"] = self.version


def test_a_file_extends_base_configurations(tmp_path):
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "say.toml").write_text('[say]\nbackend = "TestSay"\nword = "base"\n')
    (tmp_path / "common" / "base.toml").write_text('[a]\nsource = "say.toml"\nmemory = 7\n[b]\nbackend = "Identity"\n')
    (tmp_path / "models.toml").write_text('extends = "common/base.toml"\n[a]\nversion = "3"\n')
    found = read_components(tmp_path / "models.toml")
    assert list(found) == ["a", "b"]
    assert found["a"].versions["3"].memory == 7
    with AllRounder(tmp_path / "models.toml") as rounder:
        assert rounder.infer({"data": 1}, ["a"])["a"]["result"] == "base on cpu"


def test_a_folder_is_a_repository(tmp_path):
    (tmp_path / "one.toml").write_text('[one]\nbackend = "Identity"\n')
    (tmp_path / "many").mkdir()
    for version in ("1", "2"):
        (tmp_path / "many" / f"{version}.toml").write_text('[many]\nbackend = "Identity"\n')
    (tmp_path / "many" / "model.toml").write_text('default = "1"\naliases = ["alias"]\n')
    (tmp_path / "README.md").write_text("not a model")
    found = read_components(tmp_path)
    assert {name: list(spec.versions) for name, spec in found.items()} == {"many": ["1", "2"], "one": ["1"]}
    assert (found["many"].default, found["many"].aliases) == ("1", ("alias",))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("absent", '"absent" is neither a folder nor a file that ends in .toml'),
        ("absent.toml", 'no such file: "absent.toml"'),
        (7, "the components are a path, a mapping of names, or None; got int"),
        ({"a/b": "Identity"}, "the name of a component has 1 to 128 letters, digits, _, . and -, got 'a/b'"),
        ({"a" * 10000: "Identity"}, r"the name of a component has 1 to 128 letters.*…"),
        ({"a": {"source": "Identity", "sorce": 1}}, 'component "a": unknown key "sorce"; known: source, inputs'),
        ({"a": {"source": "Identity", "default": "2"}}, 'component "a" has no version "2"; versions: 1'),
        ({"a": {"source": "Identity", "weights": {"1": -1}}}, 'weight of version "1" is -1; it is from 0 to 10'),
        ({"a": {"source": "Identity", "weights": {"1": 10**400}}}, "it is from 0 to 1000000000"),
        ({"a": {"source": "Identity", "inputs": [{"name": "x", "datatype": []}]}}, "has the datatype \\[\\]; known"),
        ({"a": {"source": "Identity", "outputs": [{"name": "x", "labels": "/dev/zero"}]}}, 'no such file: "/dev/zero"'),
        ({"a": {"source": "Identity", "outputs": [{"name": "x", "labels": "a\0b"}]}}, "cannot be read: no such file"),
        ({"a": {"source": "Identity", "memory": -1}}, "memory is an int of 0 or more, got -1"),
        ({"a": {"source": "Identity", "versions": {"1": "Identity"}}}, 'give either "versions", or "source"'),
        ({"a": {"versions": {}}}, "versions is a table such as"),
        ({"a": {"source": "Identity", "aliases": ["b"]}, "b": "Identity"}, 'the alias "b" is the name of a component'),
        ({"a": {"source": "Identity", "inputs": [{"name": "x", "datatype": "FP8"}]}}, "has the datatype 'FP8'; known:"),
        ({"a": {"source": "Identity", "inputs": [{"name": "x", "shape": [-2]}]}}, "sizes are ints from -1"),
        ({"a": {"source": "Identity", "inputs": [{"name": "x", "shape": [2**48 + 1]}]}}, "sizes are ints from -1"),
        ({"a": {"source": "Identity", "outputs": [{"name": "x", "shape": [True]}]}}, "sizes are ints from -1"),
        ({"a": {"source": "Identity", "outputs": ["\ud800"]}}, "is not valid Unicode"),
        ({"a": {"source": "Identity", "inputs": ["x", "x"]}}, "two inputs have the same name"),
    ],
)
def test_mistakes_are_named(source, message):
    with pytest.raises(hami.ConfigError, match=message):
        AllRounder(source)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("warmup", "3"),
        ("version", '"2"'),
        ("inputs", '[{name = "x", datatype = "FP32", shape = [-1, 4]}]'),
        ("memory", "5"),
        ("aliases", '["b"]'),
        ("weights", "{1 = 1}"),
    ],
)
def test_a_key_of_a_component_among_those_of_its_pipeline_is_named_with_its_place(tmp_path, key, value):
    (tmp_path / "models.toml").write_text(f'[a]\nbackend = "Identity"\n{key} = {value}\n')
    with pytest.raises(hami.ConfigError) as caught:
        AllRounder(tmp_path)
    first = str(caught.value).splitlines()[0]
    assert first.startswith(f'component "a": "{key}" is a key of the component')
    assert f'source = {{backend = "…"}}, and "{key}" beside source' in first
    (tmp_path / "models.toml").write_text(f'[a]\nsource = {{backend = "Identity"}}\n{key} = {value}\n')
    AllRounder(tmp_path).close()


def test_a_parameter_of_a_backend_may_have_the_name_of_a_key_of_a_component():
    with pytest.raises(hami.ConfigError) as caught:
        AllRounder({"a": {"backend": "TestVersion", "version": 2, "wrong": 1}})
    assert str(caught.value).startswith('nothing uses the key "wrong"')


def test_a_file_that_extends_itself_is_an_error(tmp_path):
    (tmp_path / "models.toml").write_text('extends = "models.toml"\n')
    with pytest.raises(hami.ConfigError, match="extends itself"):
        AllRounder(tmp_path / "models.toml")


def test_a_nodes_table_and_a_file_can_move_to_a_device(tmp_path):
    (tmp_path / "say.toml").write_text('[talk]\nbackend = "TestSay"\nword = "file"\ndevice = "cpu"\n')
    with AllRounder({"file": tmp_path / "say.toml", "nodes": {"talk": say("nodes")}, "flat": say("flat")}) as rounder:
        for name in rounder.components():
            rounder[name].to(" npu:1 ")
        answers = {name: request["result"] for name, request in rounder.infer({"data": 1}).items()}
        assert answers == {name: f"{name} on npu:1" for name in ("file", "nodes", "flat")}


def test_a_pipeline_without_a_device_cannot_move():
    with (
        AllRounder({"a": "Identity"}) as rounder,
        pytest.raises(
            hami.ConfigError, match='"a" version "1" cannot move to npu:1: no backend of it has the parameter'
        ),
    ):
        rounder["a"].to("npu:1")


@pytest.mark.parametrize(
    "content",
    [b'a = "\xff"', b"a = " + b"[" * 100_000, b"a." * 50_000 + b"a = 1", b"a = 0x" + b"f" * 5000],
    ids=["not text", "nested without end", "dotted without end", "a long number"],
)
def test_a_file_that_cannot_be_parsed_is_named(tmp_path, content):
    (tmp_path / "models.toml").write_bytes(content)
    with pytest.raises(hami.ConfigError, match=r"models\.toml"):
        AllRounder(tmp_path / "models.toml")


def test_only_line_breaks_end_a_label_of_a_file(tmp_path):
    names = ("a\x0cb", "c\u2028d", "e\x85f", "", "g")
    (tmp_path / "labels.txt").write_text("\ufeff" + "\r\n".join(names) + "\r\n", "utf-8", newline="")
    output = {"name": "y", "datatype": "FP32", "shape": [-1], "labels": str(tmp_path / "labels.txt")}
    (found,) = read_components({"a": {"source": "Identity", "outputs": [output]}})["a"].versions.values()
    assert found.outputs[0].labels == names
