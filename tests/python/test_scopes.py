"""Where a parameter gets its value: reference/expressions.md, "Scopes" and "Types of parameters"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hami
import pytest
from hami import _core
from hami._config import load


@hami.register("TestScopes")
class Scopes(hami.Backend):
    """Returns its parameter."""

    thread = "serialized"
    key: str = "the default"

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = self.key


EVERY_SCOPE = """\
[global]
key = "[global]"

[node]
backend = "TestScopes(key='X(key=v)')"
"TestScopes.key" = "X.key"
key = "key in the node"
"""

# Each configuration leaves out one more scope.
FIRST_MATCH_WINS = [
    (EVERY_SCOPE, "X(key=v)"),
    (EVERY_SCOPE.replace("(key='X(key=v)')", ""), "X.key"),
    (EVERY_SCOPE.replace("(key='X(key=v)')", "").replace('"TestScopes.key" = "X.key"\n', ""), "key in the node"),
    ('[global]\nkey = "[global]"\n[node]\nbackend = "TestScopes"\n', "[global]"),
    ('[node]\nbackend = "TestScopes"\n', "the default"),
]


@pytest.mark.parametrize(("text", "winner"), FIRST_MATCH_WINS, ids=[winner for _, winner in FIRST_MATCH_WINS])
def test_the_first_scope_that_has_a_value_wins(text: str, winner: str, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(text)
    with hami.pipe(tmp_path / "p.toml") as pipe:
        assert pipe({"data": 0})["result"] == winner


def test_a_sub_table_equals_a_key_with_a_dot(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(
        '[node]\nbackend = "TestScopes"\nkey = "k"\n[node.TestScopes]\nkey = "sub-table"\n'
    )
    with hami.pipe(tmp_path / "p.toml") as pipe:
        assert pipe({"data": 0})["result"] == "sub-table"


def test_a_global_key_must_be_used_by_at_least_one_node() -> None:
    nodes: dict[str, Any] = {"a": {"backend": "TestScopes"}, "b": {"backend": "Identity"}}
    assert _core.check(load({"global": {"key": "x"}, **nodes})) == []
    problems = _core.check(load({"global": {"kye": "x"}, **nodes}))
    assert [str(problem) for problem in problems] == [
        'nothing uses the key "kye"; did you mean "key"?\n  in  kye = "x"   ([global])\n      ^^^'
    ]


def test_a_key_of_one_backend_is_not_valid_in_global() -> None:
    problems = _core.check(load({"global": {"TestScopes.key": "x"}, "node": {"backend": "TestScopes"}}))
    assert [str(problem).splitlines()[0] for problem in problems] == ['nothing uses the key "TestScopes.key"']


def test_a_key_for_a_backend_that_the_node_does_not_use_is_an_error() -> None:
    problems = _core.check(load({"backend": "TestScopes", "Log.key": "x"}))
    assert [str(problem).splitlines()[0] for problem in problems] == ['nothing uses the key "Log.key"']


def test_keys_that_the_expression_overrides_are_valid() -> None:
    given = {"backend": "TestScopes(key=a)", "TestScopes.key": "b", "key": "c"}
    with hami.pipe(given) as pipe:
        assert pipe({"data": 0})["result"] == "a"


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        *((word, True) for word in (1, True, "1", "true", "yes", "on", "TRUE", "yEs", "On")),
        *((word, False) for word in (0, False, "0", "false", "no", "off", "FALSE", "No", "oFF")),
    ],
)
def test_the_words_for_booleans_are_case_insensitive(value: Any, meaning: bool) -> None:
    @hami.register("TestFlag")
    class Flag(hami.Backend):
        flag: bool

        def forward(self, batch: list[Any]) -> None: ...

    assert values_of({"backend": "TestFlag", "flag": value})["flag"] is meaning
    assert values_of({"backend": f"TestFlag({value})"})["flag"] is meaning


@pytest.mark.parametrize(("value", "milliseconds"), [(5, 5.0), ("5", 5.0), ("5ms", 5.0), ("2s", 2000.0), (0.5, 0.5)])
def test_a_bare_batching_timeout_is_milliseconds(value: Any, milliseconds: float) -> None:
    assert values_of({"backend": "Identity", "batching_timeout": value})["batching_timeout"] == milliseconds


def values_of(node: dict[str, Any]) -> dict[str, Any]:
    """Return the value of every parameter in one node."""
    backends = _core.explain(load(node))["nodes"]["default"]["backends"]
    return {param["name"]: param["value"] for backend in backends for param in backend["params"]}
