"""References (`${…}`) in values, and the errors for invalid references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hami
import pytest
from hami._config import load, read


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "HAMI_TEST_A": "alpha",
        "HAMI_TEST_EMPTY": "",
        "HAMI_TEST_REF": "${x}",
        "HAMI_TEST_N": "7",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HAMI_TEST_NONE", raising=False)


NODE = {"x": 4, "yes": True, "half": 0.5, "items": ["a", 1], "name": "n", "S.deep": "d", "none": None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${env:HAMI_TEST_A}", "alpha"),
        ("<${env:HAMI_TEST_A}>", "<alpha>"),
        ("${env:HAMI_TEST_EMPTY}", ""),
        ("${env:HAMI_TEST_EMPTY:-other}", "other"),
        ("${env:HAMI_TEST_NONE:-other}", "other"),
        ("${env:HAMI_TEST_NONE:-}", ""),
        ("${env:HAMI_TEST_NONE:-a:-b}", "a:-b"),
        ("${env:HAMI_TEST_NONE:-{node_name}.onnx}", "{node_name}.onnx"),
        ("${env:HAMI_TEST_A:-other}", "alpha"),
        ("${env:HAMI_TEST_REF}", "${x}"),  # the value of an environment variable is plain text
        ("${x}", 4),
        ("${yes}", True),
        ("${half}", 0.5),
        ("${items}", ["a", 1]),
        ("${none}", None),
        ("${S.deep}", "d"),
        ("${x}${x}", "44"),
        ("n-${x}, ${yes}, ${half}", "n-4, true, 0.5"),
        ("${node_name}.onnx", "det.onnx"),
        ("${everywhere}", "g"),
        ("${made}", "g4"),
        ("$${x}", "${x}"),
        ("$$${x}", "$${x}"),
        ("$x $ {x} {x} $", "$x $ {x} {x} $"),
        (["${x}", "a${x}", ["${items}"]], [4, "a4", [["a", 1]]]),
    ],
)
def test_references_are_replaced(text: Any, expected: Any) -> None:
    given = {"global": {"everywhere": "g", "x": "global"}, "det": {**NODE, "made": "${everywhere}${x}", "key": text}}
    loaded = load(given)
    assert loaded.nodes["det"]["key"] == expected
    assert type(loaded.nodes["det"]["key"]) is type(expected)


def test_global_and_top_level_values_can_only_refer_to_global_keys() -> None:
    given = {
        "global": {"root": "/m", "path": "${root}/a", "way": "node.a"},
        "entrypoint": "Forward[${way}]",
        "providers": {"X": "${env:HAMI_TEST_A}"},
        "a": {"root": "/own", "path2": "${path}", "path3": "${root}"},
    }
    loaded = load(given)
    assert loaded.globals == {"root": "/m", "path": "/m/a", "way": "node.a"}
    assert loaded.nodes["a"] == {"root": "/own", "path2": "/m/a", "path3": "/own"}
    assert loaded.entrypoint == "Forward[node.a]"
    assert loaded.providers == {"X": "alpha"}


def test_a_key_that_another_value_refers_to_counts_as_used() -> None:
    given = {"global": {"root": "x"}, "a": {"backend": "Log(${what})", "what": "${root}y"}}
    with hami.pipe(given) as pipe:
        assert pipe({"data": 1})["result"] == 1
    with pytest.raises(hami.ConfigError, match='nothing uses the key "what"'):
        hami.pipe({"backend": "Identity", "what": "x"})


def test_templates_of_expressions_are_not_replaced() -> None:
    """The core replaces `{key}` when it builds the expression."""
    assert load({"backend": "Log({what})", "what": "hello"}).nodes["default"]["backend"] == "Log({what})"


def test_settings_of_the_command_line_may_contain_references() -> None:
    from hami._cli.source import read_source

    config, problems = read_source("Log(${what})", ["what=${env:HAMI_TEST_A}"], [])
    assert (config.nodes["default"]["backend"], problems) == ("Log(alpha)", [])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"det": {"path": "/m/${modle}", "model": "x"}},
            """neither node "det" nor [global] has a key "modle"; did you mean "model"?
  in  path = "/m/${modle}"   (node "det")
                 ^^^^^^^^""",
        ),
        (
            {"global": {"path": "${node_name}"}, "det": {}},
            """[global] has no key "node_name"
  in  path = "${node_name}"   ([global])
              ^^^^^^^^^^^^""",
        ),
        (
            {"det": {}, "entrypoint": "Forward[${way}]"},
            """[global] has no key "way"
  in  entrypoint = "Forward[${way}]"
                            ^^^^^^""",
        ),
        (
            {"det": {"path": "${env:HAMI_TEST_NONE}"}},
            """\
the environment variable HAMI_TEST_NONE is not set; did you mean HAMI_TEST_N, HAMI_TEST_REF or HAMI_TEST_A?
  in  path = "${env:HAMI_TEST_NONE}"   (node "det")
              ^^^^^^^^^^^^^^^^^^^^^
  set it, or write ${env:HAMI_TEST_NONE:-default}""",
        ),
        (
            {"det": {"path": "a ${x"}},
            """"${" is never closed
  in  path = "a ${x"   (node "det")
                ^^
  write ${key}, ${env:NAME} or ${env:NAME:-default}, and $${ for the text ${""",
        ),
        (
            {"det": {"path": "${__import__('os')}"}},
            """${__import__('os')} is not a valid reference
  in  path = "${__import__('os')}"   (node "det")
              ^^^^^^^^^^^^^^^^^^^
  write ${key}, ${env:NAME} or ${env:NAME:-default}, and $${ for the text ${""",
        ),
        (
            {"det": {"path": "${}"}},
            """${} is not a valid reference
  in  path = "${}"   (node "det")
              ^^^
  write ${key}, ${env:NAME} or ${env:NAME:-default}, and $${ for the text ${""",
        ),
        (
            {"det": {"path": "${env:A:-${env:B}}"}},
            """${env:A:-${env:B}} is not a valid reference
  in  path = "${env:A:-${env:B}}"   (node "det")
              ^^^^^^^^^^^^^^^^^^
  a default must be plain text""",
        ),
        (
            {"det": {"path": ["a", "b ${x}"], "x": ["c"]}},
            """${x} is a list, which cannot be inserted into text
  in  path = ["a", "b ${x}"]   (node "det")
                      ^^^^""",
        ),
        (
            {"det": {"path": "b ${x}", "x": None}},
            """${x} is None, which cannot be inserted into text
  in  path = "b ${x}"   (node "det")
                ^^^^""",
        ),
        (
            {"det": {"path": "${path}"}},
            """"path" of node "det" refers to itself: path -> path
  in  path = "${path}"   (node "det")
              ^^^^^^^""",
        ),
        (
            {"det": {"a": "${b}", "b": "x${c}", "c": ["${a}"], "d": "${a}"}},
            """"c" of node "det" refers to itself: a -> b -> c -> a
  in  c = ["${a}"]   (node "det")
            ^^^^""",
        ),
    ],
)
def test_an_invalid_reference_is_an_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(hami.ConfigError) as caught:
        load(given)
    assert str(caught.value) == message


def test_a_value_that_cannot_be_resolved_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no further errors: neither that a key is missing nor that a key is unused."""
    (tmp_path / "p.toml").write_text(
        '[a]\nbackend = "${nne}"\ncolour = 1\n[b]\nbackend = "Log"\nmessage = "${nne}"\nnext = "c"\n'
        '[c]\nbackend="Identity"\nnext = "${x}"\n'
    )
    monkeypatch.chdir(tmp_path)
    config, problems = read("p.toml")
    assert [str(problem).splitlines()[1].rpartition("(")[2] for problem in problems] == [
        'node "a", p.toml:2)',
        'node "b", p.toml:6)',
        'node "c", p.toml:10)',
    ]
    from hami import _core

    assert _core.check(config) == []


def test_an_environment_variable_that_is_not_text_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAMI_TEST_A", "\udcff")
    with pytest.raises(
        hami.ConfigError, match="the environment variable HAMI_TEST_A contains bytes that are not UTF-8"
    ):
        load({"backend": "${env:HAMI_TEST_A}"})


def test_long_chains_and_excessive_growth_are_errors() -> None:
    chain: dict[str, Any] = {f"k{i}": f"${{k{i + 1}}}" for i in range(10_000)}
    _, problems = read({"a": {**chain, "k10000": 1}})
    assert str(problems[0]).startswith('"k99" of node "a" needs more than 100 nested references\n')
    laughs: dict[str, Any] = {f"k{i}": f"${{k{i + 1}}}${{k{i + 1}}}" for i in range(60)}
    _, problems = read({"a": {**laughs, "k60": "ha"}})
    assert [str(problem).splitlines()[0] for problem in problems] == [
        '"k37" of node "a" exceeds the 16 MiB that all references together may insert'
    ]
    _, problems = read({"a": {f"k{i}": [f"${{k{i + 1}}}"] * 2 for i in range(60)} | {"k60": [1]}})
    assert len(problems) == 1


def test_megabytes_of_text_are_read_in_finite_time() -> None:
    for text in (
        "x" * (1 << 20),
        "${" * (1 << 19),
        "$${" * (1 << 18),
        "{" * (1 << 20),
        "${a" * (1 << 18),
        "${x}" * (1 << 16),
    ):
        problems = read({"a": {"x": 1, "key": text}})[1]
        assert len(problems) <= 1
        assert all(len(str(problem)) < 1000 for problem in problems)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nothing to hide", "nothing to hide"),
        ("cannot reach http://me:p@ss@host:80/x?y=a@b", "cannot reach http://***@host:80/x?y=a@b"),
        ("the key s3cret/1\n'é is wrong", "the key *** is wrong"),
        ("http://host/s3cret%2F1%0A%27%C3%A9", "http://host/***"),
        ("got " + repr("s3cret/1\n'é"), 'got "***"'),
        ("7 of 7", "7 of 7"),  # a value of less than 4 characters is in other text by chance
    ],
)
def test_values_of_environment_variables_and_passwords_are_hidden(
    text: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAMI_TEST_SECRET", "s3cret/1\n'é")
    load({"a": {"backend": "Identity", "key": "${env:HAMI_TEST_SECRET}", "n": "${env:HAMI_TEST_N}"}})
    assert hami.observe.redact(text) == expected
