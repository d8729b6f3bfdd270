"""The reference is complete: generated parts are current, every backend, statistic and key is described."""

from __future__ import annotations

import re
import subprocess
import sys

import hami
import pytest
from doc_blocks import ROOT, blocks_of
from hami import _core
from hami._cli.main import _parser
from hami.packages import first_party

GENERATOR = ROOT / "ci" / "reference.py"
PAGE = ROOT / "hami-core" / "docs" / "reference" / "backends.md"
CORE = {backend.name: backend for backend in _core.defined() if backend.owner == "hami-core"}

COMMAND_LINE = ROOT / "hami-core" / "docs" / "reference" / "command-line.md"
OWNERS = first_party().owners("commands")  # of the commands that plugins add
OF_THE_CORE = list(_parser()[1].choices)
DOCUMENTS = [ROOT / "README.md", *(ROOT / "hami-core" / "docs").rglob("*.md"), *ROOT.glob("hami-plugins/*/README.md")]


def command_rows() -> dict[str, bool]:
    """Return the commands in the table of the reference, and whether the row says that they are in hami-tools."""
    rows = re.findall(r"^\| (\[?`hami .*?) \|", COMMAND_LINE.read_text("utf-8"), re.MULTILINE)
    return {name: row.endswith("†") for row in rows for name in re.findall(r"`hami ([a-z][a-z-]*)", row)}


def test_the_reference_says_of_each_command_whether_it_is_in_hami_tools() -> None:
    rows = command_rows() | {"show": False}  # two rows: `hami show NAME` needs hami-tools
    in_tools = {name for name, owners in OWNERS.items() if owners == ["hami-tools"]}
    assert rows == {**dict.fromkeys(in_tools, True), **dict.fromkeys(OF_THE_CORE, False)}


def test_every_command_that_a_document_names_exists() -> None:
    of_two = {f"{owner.removeprefix('hami-')}-{name}" for name, owners in OWNERS.items() for owner in owners[1:]}
    known = {*OF_THE_CORE, *OWNERS, *of_two}
    pattern = re.compile(r"(?:`|\$ (?:\w+/bin/|python3? -m )?)hami ([a-z][a-z-]*)")
    unknown = {page: set(pattern.findall(page.read_text("utf-8"))) - known for page in DOCUMENTS}
    assert {page.name: commands for page, commands in unknown.items() if commands} == {}


def test_the_generated_parts_are_current() -> None:
    done = subprocess.run([sys.executable, GENERATOR, "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", CORE)
def test_each_backend_has_an_example_that_runs(name: str) -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    begin = lines.index(f"<!-- registry {name} -->")
    end = next((at for at in range(begin + 1, len(lines)) if lines[at].startswith("<!-- registry ")), len(lines))
    examples = [block for block in blocks_of(PAGE) if begin < block.line <= end and block.language == "python"]
    assert any("hami.pipe(" in block.text or "ask(" in block.text for block in examples)
    assert not any("skip" in block.directives for block in examples)


@pytest.mark.parametrize("name", CORE)
def test_each_backend_and_each_parameter_is_described(name: str) -> None:
    assert re.match(r"[A-Z`].*\.$", CORE[name].doc.splitlines()[0])
    assert [param["name"] for param in CORE[name].params if not param["help"]] == []


def statistics() -> set[str]:
    with hami.pipe("Identity") as pipe:
        return set(pipe.stats()["default"].as_dict())


@pytest.mark.parametrize("page", ["statistics.md", "glossary.md"])
def test_each_statistic_has_a_row(page: str) -> None:
    text = (PAGE.parent / page).read_text("utf-8")
    assert {name for name in statistics() if f"`{name}`" not in text} == set()


def test_the_repr_of_statistics_shows_each_once_in_short_lines() -> None:
    histograms = dict.fromkeys(("queue_ms", "batch_ms", "latency_ms", "batch_sizes"), (7.0, [(6.5, 7.5, 1)]))
    numbers = dict.fromkeys(hami.observe.NodeStats.__annotations__, 7) | {
        "per_item_ms": 0.20449,
        "lanes": {"high": {"submitted": 2}},
    }
    every = numbers | histograms | {"backend_ms": {"Fit": 7}, "counters": {"misses": 2}, "policy": {"trial": "x"}}
    text = repr(hami.observe.NodeStats(every))
    shown = every.keys() - {"backend_ms", "lanes", "policy"} | {"Fit", "trial"}
    assert sorted(re.findall(r"(\w+)(?==|: p50 )", text)) == sorted(shown)
    assert "per_item_ms=0.204," in text
    assert "\n    closed_full=7, closed_target_size=7, closed_timeout=7, closed_queue_empty=7,  # why" in text
    assert "\n    high: submitted 2,\n    normal: submitted 5, completed 7" in text
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize("page", ["configuration.md", "glossary.md"])
def test_each_key_of_a_node_has_a_row(page: str) -> None:
    rows = re.findall(r"^\| \[?`(\w+)`", (PAGE.parent / page).read_text("utf-8"), re.MULTILINE)
    scheduling = ("InstancesRegister", "Batching", "InstanceDispatcher")
    assert {param["name"] for name in scheduling for param in CORE[name].params} - set(rows) == set()
