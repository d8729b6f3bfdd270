"""Very large configurations are read in finite time, or are an error with a position."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
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


def all_heads(problems: list[Exception], config: Any) -> list[str]:
    return heads([*problems, *_core.check(config)])


@pytest.mark.parametrize("section", ["a", "global"])
def test_of_many_unused_keys_the_first_20_are_listed_and_the_others_are_counted(section: str) -> None:
    unused = {f"x{i}": i for i in range(1000)}
    nodes: dict[str, Any] = {"a": {"backend": "Identity"}, "b": {"backend": "Identity", "y": 1}}
    nodes[section] = {**nodes.get(section, {}), **unused}
    config, problems = read(nodes)
    listed = [f'nothing uses the key "x{i}"' for i in range(20)]
    rest = f"nothing uses 980 more of the {len(nodes[section])} keys"
    own, other = [*listed, rest], ['nothing uses the key "y"']
    assert all_heads(problems, config) == (own + other if section == "a" else other + own)


def test_of_many_unknown_top_level_keys_the_first_20_are_listed_and_the_others_are_counted(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("".join(f"x{i} = 1\n" for i in range(1000)) + '[a]\nbackend = "Identity"\n')
    listed = [f'nothing uses the key "x{i}"' for i in range(20)]
    config, problems = read(tmp_path / "p.toml")
    assert all_heads(problems, config) == [*listed, "nothing uses 980 more of the 1000 keys"]


def test_of_many_wrong_top_level_keys_the_first_20_are_listed_and_the_others_are_counted(tmp_path: Path) -> None:
    keys = "".join(f"x{i} = 1\n" for i in range(1000))
    (tmp_path / "p.toml").write_text(f'{keys}[global]\n{keys}[a]\nbackend = "Identity"\n')
    listed = [f'"x{i}" is given twice: above the first table and in [global]' for i in range(20)]
    config, problems = read(tmp_path / "p.toml")
    assert all_heads(problems, config)[:21] == [*listed, f"980 more wrong top-level keys   ({tmp_path}/p.toml)"]


def lines_of(function: Callable[[], Any]) -> int:
    """Return how many lines of Python a call runs, which does not depend on the load of the machine."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(previous)
    return count


def many_keys(number: int) -> dict[str, Any]:
    return {"a": {"backend": "Identity", **{f"x{i}": i for i in range(number)}}}


def many_references(number: int) -> dict[str, Any]:
    return {"a": {"backend": "Identity", **{f"x{i}": f"${{y{i}}}" for i in range(number)}}}


@pytest.mark.parametrize("source", [many_keys, many_references])
def test_the_time_to_report_mistakes_is_linear_in_their_number(source: Callable[[int], Any], monkeypatch: Any) -> None:
    compared = 0
    near_names = _core.near_names

    def counted(name: str, candidates: list[str]) -> list[str]:
        nonlocal compared
        compared += len(candidates)
        return near_names(name, candidates)

    monkeypatch.setattr(_core, "near_names", counted)
    few = lines_of(lambda: read(source(1000)))
    many = lines_of(lambda: read(source(10_000)))
    assert many < 12 * few
    assert compared <= 20 * (1000 + 10_000 + 10)


def test_the_core_reports_100000_unused_keys_in_linear_time() -> None:
    """The core once compared each of these keys with all others, which took a minute."""
    config, problems = read(many_keys(99_000))
    started = time.process_time()
    assert len(_core.check(config)) == 21
    assert problems == []
    assert time.process_time() - started < 20  # 0.3 s on an idle machine


def test_a_file_of_600000_unknown_keys_is_an_error_that_counts_them_and_lists_the_first_20(tmp_path: Path) -> None:
    source = tmp_path / "many.toml"
    keys = "".join(f"x{i} = {i}\n" for i in range(600_000))
    source.write_text(f'[a]\nbackend = "Identity"\n{keys}')
    started = time.process_time()
    with pytest.raises(hami.ConfigError) as caught:
        load(source)
    assert time.process_time() - started < 20  # 0.2 s on an idle machine
    headline = f"{source}: a configuration has at most 100000 keys and tables, got 600002"
    listed = [f'nothing uses the key "x{i}"' for i in range(20)]
    assert heads(caught.value.problems) == [headline, *listed]
    assert f'(node "a", {source}:3)' in str(caught.value.problems[1])


def test_a_file_of_too_many_keys_lists_no_key_that_its_rest_may_use(tmp_path: Path) -> None:
    """What follows the first keys may refer to them, name the backend or end a text."""
    keys = "".join(f"x{i} = {i}\n" for i in range(100_000))
    for text, listed in (
        (f'[a]\nbackend = "Identity"\n{keys}map = "${{x1}} ${{x3}}"', ["x0", "x2", *(f"x{i}" for i in range(4, 20))]),
        (f'[a]\n{keys}backend = "Identity"', []),
        (f'[global]\n{keys}[a]\nbackend = "Identity"', []),
        (f'[a]\nbackend = "Identity"\nx = """\n{keys}"""\n[b]\n{keys}', []),
        (f'[a]\nbackend = "Identity"\n[b] c\n{keys}', []),
    ):
        (tmp_path / "many.toml").write_text(text)
        with pytest.raises(hami.ConfigError) as caught:
            load(tmp_path / "many.toml")
        assert "a configuration has at most 100000 keys and tables, got 10000" in str(caught.value)
        assert heads(caught.value.problems[1:]) == [f'nothing uses the key "{key}"' for key in listed]


def test_a_dict_has_at_most_100000_keys() -> None:
    started = time.process_time()
    with pytest.raises(hami.ConfigError) as caught:
        load(many_keys(600_000))
    assert str(caught.value) == "a configuration has at most 100000 keys and tables, got 600002"
    assert time.process_time() - started < 20  # 0.8 s on an idle machine


def test_text_and_lists_of_any_length_do_not_count_as_keys(tmp_path: Path) -> None:
    rows = ",\n".join(["[1, 2]"] * 60_000)
    (tmp_path / "p.toml").write_text(
        f'[a]\nbackend = "Log"\nmessage = """\n{"x = [1]" * 200_000}\n"""  # {"=" * 200_000}\nrows = [\n{rows}\n]\n'
    )
    config, problems = read(tmp_path / "p.toml")
    assert all_heads(problems, config) == ['nothing uses the key "rows"']


def test_a_configuration_file_is_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "extends.toml").write_text('extends = "pipe.toml"\n')
    for name, reason in (
        ("pipe.toml", "it is not a regular file"),
        ("zero.toml", "it is not a regular file"),
        ("folder.toml", "Is a directory"),
    ):
        with pytest.raises(hami.ConfigError) as caught:
            load(tmp_path / name)
        assert str(caught.value) == f'cannot read "{tmp_path / name}": {reason}'
    with pytest.raises(hami.ConfigError) as caught:
        load(tmp_path / "extends.toml")
    assert heads([caught.value]) == [f'cannot read "{tmp_path}/pipe.toml": it is not a regular file']


def test_a_configuration_file_has_at_most_16_mib(tmp_path: Path) -> None:
    source = tmp_path / "large.toml"
    source.write_text('[a]\nbackend = "Identity"\n#')
    with source.open("ab") as file:
        file.write(b"x" * ((16 << 20) - source.stat().st_size))
    assert _core.check(load(source)) == []
    os.truncate(source, 1 << 40)  # sparse
    with pytest.raises(hami.ConfigError) as caught:
        load(source)
    assert str(caught.value) == f'cannot read "{source}": a configuration file has at most 16 MiB'


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
        ("instance_num", -1, '"instance_num" of InstancesRegister takes int from 0 to 65536 or "auto", got -1'),
        (
            "instance_num",
            10**8,
            '"instance_num" of InstancesRegister takes int from 0 to 65536 or "auto", got 100000000',
        ),
        ("max_queue_size", 0, '"max_queue_size" of InstanceDispatcher takes int of at least 1, got 0'),
        ("max_queue_size", -1, '"max_queue_size" of InstanceDispatcher takes int of at least 1, got -1'),
    ],
)
def test_a_number_outside_its_range_is_an_error(key: str, number: int, message: str) -> None:
    assert heads(_core.check(load({"backend": "Identity", key: number}))) == [f"parameter {message}"]
