"""hami schema: a JSON schema that accepts the same configurations as the core."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import ROOT, Run, Site
from doc_blocks import blocks_of
from hami.packages import BackendInfo

from hami_tools.schema import schema_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema, which is not installed")


def infos() -> list[BackendInfo]:
    """Return the backends of the core without those that other tests register."""
    return [one for one in hami.backends().values() if one.owner == "hami-core"]


@pytest.fixture(scope="module")
def check() -> Any:
    """Return a function that checks a configuration with the schema."""
    schema = schema_of(infos())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    return lambda given: not list(validator.iter_errors(given))


@pytest.mark.parametrize(
    "given",
    [
        {"backend": "Identity"},
        {"backend": "Identity", "max": 4, "own_key": [1, "a", True]},
        {"a": {"backend": "Identity"}},
        {"a": {"backend": "E", "instance_num": 2}},
        {"a": {"backend": "E", "instance_num": "2"}},
        {"a": {"backend": "E", "instance_num": 2.0}},
        {"a": {"backend": "E", "instance_num": " 2 "}},
        {"a": {"backend": "E", "instance_num": "${env:N:-2}"}},
        {"a": {"backend": "E", "batching_timeout": 5}},
        {"a": {"backend": "E", "batching_timeout": "5ms"}},
        {"a": {"backend": "E", "batching_timeout": "1.5 s"}},
        {"a": {"backend": "E", "on_full": "reject"}},
        {"a": {"backend": "E", "on_full": "${how}"}},
        {"a": {"backend": "E", "or": "Yes"}},
        {"a": {"backend": "E", "or": 1}},
        {"a": {"backend": "E", "next": "b,c"}},
        {"a": {"backend": "E", "next": ["b", "c"]}},
        {"a": {"backend": "E", "InstanceDispatcher": {"max": 4}}},
        {"a": {"backend": "E", "InstanceDispatcher.max": 4}},
        {"a": {"backend": "E", "Unknown": {"what": 3, "deep": {"er": "x"}}}},
        {"global": {"max": 2}, "providers": {"A": "b"}, "requires": ["x>=1"], "entrypoint": "E", "a": {"backend": "E"}},
        {"extends": "base.toml"},
        {"extends": ["base.toml", "ocr"], "a": {"max": 1}},
        {"extends": "base.toml", "max": 4},
        {"global": {"backend": "E"}, "a": {}, "b": {}},
        {"a": {"node_entrypoint": "E"}, "b": {"init": "E"}},
        {"max": {"backend": "E"}},
    ],
)
def test_the_schema_accepts_valid_configurations(given: dict[str, Any], check: Any) -> None:
    assert check(given)


@pytest.mark.parametrize(
    "given",
    [
        {"a": {"instance_num": "two"}},
        {"a": {"instance_num": 2.5}},
        {"a": {"instance_num": True}},
        {"a": {"instance_num": [2]}},
        {"a": {"batching_timeout": "5 parsecs"}},
        {"a": {"batching_timeout": -1}},
        {"a": {"on_full": "explode"}},
        {"a": {"or": "maybe"}},
        {"a": {"next": 3}},
        {"a": {"backend": 3}},
        {"a": {"InstanceDispatcher": {"mx": 4}}},
        {"a": {"InstanceDispatcher": {"max": "x"}}},
        {"a": {"InstanceDispatcher.max": "x"}},
        {"a b": {}},
        {"a": {}, "speed": 1},
        {"a": {"backend": "E"}, "max": "x"},
        {"a": {"backend": "E"}, "InstanceDispatcher.max": "x"},
        {"a": {"backend": "E"}, "a b": {"backend": "E"}},
        {},
        {"max": 4},
        {"global": 3},
        {"global": {"max": "x"}, "a": {}},
        {"providers": {"A": 3}},
        {"requires": "x"},
        {"entrypoint": 3, "a": {}},
        {"extends": 3},
        {"max": "x"},
    ],
)
def test_the_schema_rejects_invalid_configurations(given: dict[str, Any], check: Any) -> None:
    assert not check(given)


@pytest.mark.parametrize(
    ("given", "path", "message"),
    [
        ({"a": {"backend": "E"}, "b": {"backend": "E", "instance_num": "two"}}, ["b", "instance_num"], "not valid"),
        ({"a": {"backend": "E", "InstanceDispatcher": {"max": "x"}}}, ["a", "InstanceDispatcher", "max"], "not valid"),
        ({"a": {"backend": "E", "InstanceDispatcher": {"mx": 1}}}, ["a", "InstanceDispatcher"], "'mx' was unexpected"),
        ({"a": {"backend": "E"}, "b": {"max": 2}}, ["b"], "'backend' is a required property"),
        ({"backend": "E", "max": "x"}, ["max"], "not valid"),
        ({"extends": "base.toml", "max": "x"}, ["max"], "not valid"),
        ({"backend": "E", "a": {}, "max": "x"}, ["max"], "not valid"),
        ({"a": {"backend": "E"}, "max": "x"}, ["max"], "not valid"),
        ({"a": {"backend": "E"}, "max": {"backend": "E", "min": "x"}}, ["max", "min"], "not valid"),
        ({"a": {"backend": "E"}, "speed": None}, ["speed"], "not valid"),
        ({"a": {"backend": "E"}, "a b": {"backend": "E"}}, ["a b"], "should not be valid"),
        (
            {"a": {"backend": "E"}, "InstanceDispatcher.max": {"backend": "E"}},
            ["InstanceDispatcher.max"],
            "not be valid",
        ),
        ({"max": 4}, [], "'backend' is a required property"),
        ({"global": {"max": "x"}, "a": {"backend": "E"}}, ["global", "max"], "not valid"),
    ],
)
def test_one_mistake_gives_one_error_at_the_wrong_key(given: dict[str, Any], path: list[str], message: str) -> None:
    [error] = jsonschema.Draft202012Validator(schema_of(infos())).iter_errors(given)
    assert list(error.absolute_path) == path
    assert message in error.message


OWN_FILES = sorted((ROOT / "hami-plugins").glob("*/python/*/*.toml")) + sorted(
    (ROOT / "tests/plugins").glob("*/*/*.toml")
)
IN_DOCUMENTS = [
    block
    for page in [ROOT / "README.md", *sorted((ROOT / "hami-core/docs").rglob("*.md"))]
    for block in blocks_of(page)
    if block.language == "toml" and "[project" not in block.text and "skip" not in block.directives
]


@pytest.mark.parametrize("path", OWN_FILES, ids=lambda path: path.name)
def test_our_own_files_validate(path: Path, check: Any) -> None:
    assert check(tomllib.loads(path.read_text("utf-8")))


@pytest.mark.parametrize("block", IN_DOCUMENTS, ids=lambda block: f"{block.document.stem}-{block.line}")
def test_files_in_documents_validate(block: Any, check: Any) -> None:
    assert check(tomllib.loads(block.text))


def test_files_of_the_tests_validate(check: Any) -> None:
    tests = ROOT / "tests" / "python"
    files = (
        tests / "test_config.py",
        tests / "test_config_extends.py",
        Path(__file__).with_name("test_show_config.py"),
    )
    texts = [
        node.value.value
        for file in files
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and getattr(node.targets[0], "id", "") in ("WHOLE", "BASE", "OWN")
    ]
    assert len(texts) >= len(files)
    assert [text for text in texts if not check(tomllib.loads(text))] == []


def test_there_are_files_to_validate() -> None:
    assert {"ocr.toml", "twice.toml"} <= {path.name for path in OWN_FILES}
    assert len(IN_DOCUMENTS) > 3


def test_every_parameter_of_every_backend_is_described() -> None:
    schema = schema_of(infos())
    node = schema["$defs"]["node"]["properties"]
    for info in infos():
        for param in info.params or []:
            line = f"{info.name}({param['text']})" + (f": {param['help']}" if param["help"] else "")
            assert line in node[param["name"]]["description"].splitlines()
            assert f"{info.name}.{param['name']}" in node
            assert param["name"] in schema["$defs"][f"{info.name}()"]["properties"]


def test_an_alias_has_the_schema_of_its_parameter() -> None:
    param = {"name": "width", "aliases": ["resize_w"], "type": "int", "choices": [], "least": None, "most": None}
    param |= {"text": "width: int", "help": "", "required": True, "default": None}
    properties = schema_of([BackendInfo("X", "d", "", [param], "", "dedicated")])["$defs"]["X()"]["properties"]
    assert properties["resize_w"] == properties["width"]


def test_the_schema_of_a_key_contains_its_default_and_range() -> None:
    param = {"name": "k", "aliases": [], "default": 3, "help": "how many", "required": False}
    param["text"] = "k: int = 3 {1..9}"
    one = BackendInfo(
        "X",
        "d",
        "Does x.\nMore.",
        [{**param, "type": "int", "choices": [], "least": 1.0, "most": 9.0}],
        "",
        "dedicated",
    )
    schema = schema_of([one])
    assert schema["$defs"]["X()"]["description"] == "Does x."
    key = schema["$defs"]["node"]["properties"]["k"]
    assert key == {
        "description": "X(k: int = 3 {1..9}): how many",
        "default": 3,
        "anyOf": [
            {"type": "integer", "minimum": 1.0, "maximum": 9.0},
            {"type": "string", "pattern": key["anyOf"][1]["pattern"]},
        ],
    }


def test_backends_that_share_a_key_may_differ_in_its_type() -> None:
    def info(name: str, kind: str, choices: list[str]) -> BackendInfo:
        param = {"name": "k", "aliases": [], "type": kind, "choices": choices, "least": None, "most": None}
        return BackendInfo(
            name,
            "d",
            "",
            [{**param, "default": None, "help": "", "text": f"k: {kind}", "required": True}],
            "",
            "dedicated",
        )

    schema = schema_of([info("X", "int", []), info("Y", "str", ["a"])])
    validator = jsonschema.Draft202012Validator(schema)
    right = [{"k": 1}, {"k": "a"}, {"X": {"k": 1}}, {"Y": {"k": "a"}}]
    wrong = [{"k": "b"}, {"X": {"k": "a"}}, {"Y": {"k": 1}}]
    assert [keys for keys in right if not validator.is_valid({"n": {"backend": "E", **keys}})] == []
    assert [keys for keys in wrong if validator.is_valid({"n": {"backend": "E", **keys}})] == []


def test_the_command_prints_or_writes_the_schema_with_plugins(hami_command: Run, site: Site, tmp_path: Path) -> None:
    site.install("acme-good")
    done = hami_command("schema", site=site.folder, HAMI_PLUGINS="good,tools")
    assert (done.returncode, done.stderr) == (0, "")
    schema = json.loads(done.stdout)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "AcmeAdd()" in schema["$defs"]
    done = hami_command("schema", "--output", "hami.schema.json", site=site.folder, HAMI_PLUGINS="good,tools")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads((tmp_path / "hami.schema.json").read_text("utf-8")) == schema


def test_the_schema_accepts_any_keys_of_backends_that_cannot_be_loaded(hami_command: Run, site: Site) -> None:
    site.install("acme-broken")
    done = hami_command("schema", site=site.folder, HAMI_PLUGINS="broken,tools")
    assert done.returncode == 1
    assert done.stderr == (
        "error: the schema lacks the parameters of backends that cannot be loaded: AcmeEngine (acme-broken); "
        "for the reasons run: hami plugins --load\n"
    )
    assert "AcmeEngine()" not in json.loads(done.stdout)["$defs"]
