"""hami show-config: every value with its source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Run

BASE = """\
[global]
root = "/models"

[detect]
backend = "S[Identity,(or)Log(hello),Log]"
instance_num = 2
max = 4
"""

OWN = """\
extends = "base.toml"

[global]
max_queue_size = 64

[detect]
"InstanceDispatcher.on_full" = "reject"
batching_timeout = "2s"

[detect.Log]
message = "${root}/${node_name}"
"""


@pytest.fixture
def files(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "own.toml").write_text(OWN)


NODE_ENTRYPOINT = "List[InstancesRegister[Reflect[backend]], Register[DI[Batching, InstanceDispatcher]]]"


def test_every_value_is_shown_with_its_source(files: None, hami_command: Run) -> None:
    done = hami_command("show-config", "own.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout
        == f"""\
# own.toml, which extends base.toml
entrypoint = "Forward[node.{{node_name}}]"  default

[global]
  root = "/models"     base.toml:2
  max_queue_size = 64  own.toml:4

[detect]                                      own.toml:6
  backend = "S[Identity,(or)Log(hello),Log]"  base.toml:5
  instance_num = 2                            base.toml:6
  max = 4                                     base.toml:7
  InstanceDispatcher.on_full = "reject"       own.toml:7
  batching_timeout = "2s"                     own.toml:8
  Log.message = "/models/detect"              own.toml:11, written "${{root}}/${{node_name}}"
  node_entrypoint = "{NODE_ENTRYPOINT}"  default
  List
    InstancesRegister
        instance_num = 2                base.toml:6
        init_timeout = None             default
      S
        Identity
        Log
            message = "hello"           expression
        Log
            message = "/models/detect"  "Log.message", own.toml:11
    Register
      DI
        Batching
            batching = "adaptive"       default
            batching_timeout = 2s       own.toml:8
        InstanceDispatcher
            max = 4                     base.toml:7
            min = None                  default
            max_queue_size = 64         [global], own.toml:4
            on_full = "reject"          "InstanceDispatcher.on_full", own.toml:7
            memory_limit = None         default
            aging = 2s                  default
            max_wait = 0ms              default
            reserve = 0                 default
            admission = "all"           default
            request_cost = None         default
            on_batch_error = "isolate"  default
            shared_device = None        default
            timeout = None              default
"""
    )


def test_json_contains_the_same_values(files: None, hami_command: Run) -> None:
    done = hami_command("show-config", "own.toml", "--json", "--set", "max=8")
    assert (done.returncode, done.stderr) == (0, "")
    shown: dict[str, Any] = json.loads(done.stdout)
    assert shown["files"] == ["base.toml", "own.toml"]
    assert shown["global"] == {
        "root": {"value": "/models", "from": "base.toml:2"},
        "max_queue_size": {"value": 64, "from": "own.toml:4"},
    }
    assert shown["entrypoint"] == {
        "key": "entrypoint",
        "value": "Forward[node.{node_name}]",
        "from": "default",
        "backends": [],
    }
    node = shown["nodes"]["detect"]
    assert node["keys"]["max"] == {"value": "8", "from": "--set"}
    assert node["keys"]["Log.message"] == {
        "value": "/models/detect",
        "from": "own.toml:11",
        "written": "${root}/${node_name}",
    }
    assert node["keys"]["node_entrypoint"] == {"value": NODE_ENTRYPOINT, "from": "default"}
    assert node["backends"][2] == {
        "name": "S",
        "class": "Sequential",
        "owner": "hami-core",
        "depth": 2,
        "params": [],
        "absorbed": False,
    }
    params = {param["name"]: param for backend in node["backends"] for param in backend["params"]}
    assert params["max"] == {"name": "max", "value": 8, "text": "8", "from": "--set"}
    assert params["batching_timeout"] == {
        "name": "batching_timeout",
        "value": 2000.0,
        "text": "2s",
        "from": "own.toml:8",
    }


def test_several_nodes_and_a_custom_entrypoint_are_shown(tmp_path: Path, hami_command: Run) -> None:
    (tmp_path / "two.toml").write_text(
        'dag_entrypoint = "S[Log(in),DagDispatcher]"\nrequires = ["hami-core"]\n'
        '[providers]\nA = "b"\n'
        '[a]\nbackend = "Identity"\nnext = "b"\n'
        '[b]\nnode_entrypoint = "Register[Add(x=1)]"\n'
    )
    done = hami_command("show-config", "two.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "# two.toml\n"
        'dag_entrypoint = "S[Log(in),DagDispatcher]"  two.toml:1\n'
        "  S\n"
        "    Log\n"
        '        message = "in"                       expression\n'
        "    DagDispatcher\n"
        'requires = ["hami-core"]                     two.toml:2\n'
        'providers.A = "b"                            two.toml:4\n'
        "\n"
        "[a]  "
    )
    assert done.stdout.endswith(
        "[b]                                       two.toml:8\n"
        '  node_entrypoint = "Register[Add(x=1)]"  two.toml:9\n'
        "  Register\n"
        "    Add\n"
        '        x = "1"  expression\n'
    )


def test_the_source_of_an_expression_is_the_command_line(hami_command: Run) -> None:
    done = hami_command("show-config", "Log(hello)")
    assert done.stdout.startswith("# command line\n")
    assert '\n  backend = "Log(hello)"  command line\n' in done.stdout


def test_valid_parts_of_a_wrong_configuration_are_shown_with_the_errors(tmp_path: Path, hami_command: Run) -> None:
    (tmp_path / "bad.toml").write_text('[a]\nbackend = "S[Loog,Log(x)]"\ninstance_num = "two"\n')
    done = hami_command("show-config", "bad.toml")
    assert done.returncode == 1
    assert '\n        Log\n            message = "x"' in done.stdout
    assert done.stderr.startswith(
        'error: parameter "instance_num" of InstancesRegister takes int from 0 to 65536 or "auto", got "two"\n'
    )
    assert 'error: backend "Loog" not found' in done.stderr


def test_a_value_with_a_reference_is_shown_with_its_original_text(hami_command: Run) -> None:
    done = hami_command("show-config", "Log(${env:HAMI_TEST_WORD})", HAMI_TEST_WORD="hush")
    assert '  backend = "Log(hush)"  command line, written "Log(${env:HAMI_TEST_WORD})"\n' in done.stdout
