"""Very large configurations are read in finite time, or are an error with a position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hami
import pytest
from hami import _core
from hami._config import load, read


def heads(problems: list[Exception]) -> list[str]:
    return [str(problem).splitlines()[0] for problem in problems]


def test_a_chain_of_10000_nodes_is_checked() -> None:
    nodes: dict[str, Any] = {f"n{i}": {"backend": "Identity", "next": f"n{i + 1}"} for i in range(10_000)}
    nodes["n10000"] = {"backend": "Identity", "map": "n0[result:data],n5000[data:more]"}
    config, problems = read(nodes)
    assert problems == []
    assert _core.check(config) == []


def test_a_cycle_of_10000_nodes_is_an_error() -> None:
    nodes = {f"n{i}": {"backend": "Identity", "next": f"n{(i + 1) % 10_000}"} for i in range(10_000)}
    assert heads(_core.check(load(nodes))) == ['node "n0" is its own successor']


def test_10000_mistakes_are_all_reported() -> None:
    config, problems = read({f"n{i}": {"backend": "Identity", "colour": "${x}"} for i in range(10_000)})
    assert len(problems) == 10_000
    assert _core.check(config) == []  # apart from those that are already reported
    config, problems = read({f"n{i}": {"backend": "Identity", "colour": 1} for i in range(10_000)})
    assert problems == []
    assert len(_core.check(config)) == 10_000


def test_an_expression_may_have_10000_children() -> None:
    config = load({"backend": f"S[{','.join(['Identity'] * 10_000)}]"})
    assert _core.check(config) == []
    assert len(_core.explain(config)["nodes"]["default"]["backends"]) > 10_000


def test_tables_in_tables_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.toml").write_text("[a]\n[a." + ".".join("b" * 90) + "]\nx = 1\n")
    with pytest.raises(hami.ConfigError) as caught:
        load("p.toml")
    assert str(caught.value) == 'the tables of node "a" are nested more than 32 deep   (p.toml:1)'
    endless: dict[str, Any] = {}
    endless["a"] = endless
    assert heads(read(endless)[1]) == ['the tables of node "a" are nested more than 32 deep']


def test_lists_in_lists_are_limited() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert heads(read({"a": {"x": endless}})[1]) == ['"x" of node "a" has lists that are nested more than 32 deep']


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "{b = " * 5000, "[" * 5000, "a.b." * 300_000 + "c = 1"])
def test_files_with_excessive_nesting_are_errors(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(hami.ConfigError, match=r"^/.*p\.toml"):
        load(tmp_path / "p.toml")


def test_a_message_is_short_even_if_the_value_is_a_megabyte() -> None:
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe({"backend": "Identity", "max": "x" * (1 << 20)})
    assert len(str(caught.value)) < 1000
    with pytest.raises(hami.ConfigError) as caught:
        load({"a": {"x": "y" * (1 << 20) + "${none}"}})
    first, shown, caret = str(caught.value).splitlines()
    assert first == 'neither node "a" nor [global] has a key "none"'
    assert shown.endswith('y${none}"   (node "a")')
    assert shown.index("${none}") == caret.index("^^^^^^^")


@pytest.mark.parametrize(
    ("key", "number", "message"),
    [
        ("instance_num", 0, '"instance_num" of InstancesRegister takes int from 1 to 65536, got 0'),
        ("instance_num", 10**8, '"instance_num" of InstancesRegister takes int from 1 to 65536, got 100000000'),
        ("max_queue_size", 0, '"max_queue_size" of InstanceDispatcher takes int of at least 1, got 0'),
        ("max_queue_size", -1, '"max_queue_size" of InstanceDispatcher takes int of at least 1, got -1'),
    ],
)
def test_a_number_outside_its_range_is_an_error(key: str, number: int, message: str) -> None:
    assert heads(_core.check(load({"backend": "Identity", key: number}))) == [f"parameter {message}"]
