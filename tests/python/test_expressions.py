"""Expressions and parameters (reference/expressions.md), and top-level keys (reference/configuration.md)."""

from __future__ import annotations

import pathlib
import textwrap
from pathlib import Path
from typing import Annotated, Any, Literal

import hami
import pytest
from hami import _core
from rows import answer, counting, noting, refused
from running import each


class Shows(hami.Backend):
    """Returns its parameters."""

    x: Annotated[str, "the text to show"] = "default"
    n: Annotated[int, "how often"] = 0

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = (self.x, self.n)


@pytest.fixture(autouse=True)
def shows() -> None:
    hami.register("Shows")(Shows)


def test_every_error_shows_the_text_with_a_caret_the_node_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pipeline.toml").write_text('[detect]\nmax = 4\nbackend = "S[Identity,Identty]"\n')
    assert refused("pipeline.toml", hami.BackendNotFound) == textwrap.dedent(
        """\
        backend "Identty" not found; did you mean Identity?  (list all: hami backends)
          in  S[Identity,Identty]   (node "detect", pipeline.toml:3)
                         ^^^^^^^"""
    )


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (" S [ Identity ,\n\tLog ( 'a b' , message = x ) ] ", "S[Identity,Log('a b',message=x)]"),
        ("IoC[ a := Identity ; S[a,a] ]", "IoC[a:=Identity;S[a,a]]"),
        ('S[(.onnx)A("x"),( or )B]', "S[(.onnx)A(x),(or)B]"),
    ],
)
def test_printing_is_canonical(text: str, printed: str) -> None:
    """`parse(print(t)) == t`, and white space between tokens has no meaning."""
    assert _core.print_expression(text) == printed
    assert _core.print_expression(printed) == printed


def test_an_expression_contains_no_comments() -> None:
    assert refused("S[Identity # here\n]").splitlines()[0] == 'unexpected "#"'


def test_names_may_repeat_at_any_depth_and_a_child_does_not_inherit_the_brackets_of_its_parent() -> None:
    counting()
    assert answer("S[S[Count],S[S[Count]]]") == [1, 1]
    assert refused("S[S,Identity]").splitlines()[0] == "S needs brackets"


def test_parentheses_before_a_name_belong_to_the_container_and_after_it_to_the_backend() -> None:
    """`(…)` before a name selects when the container uses this child; after the name it holds parameters."""
    hami.register("Silent")(type("Silent", (hami.Backend,), {"forward": lambda self, batch: None}))
    assert answer("S[Silent,(or)Shows(a,3)]") == ("a", 3)
    assert answer("S[Shows(a, 3)]") == ("a", 3)
    assert answer("Shows(n=3, x=a)") == ("a", 3)
    assert refused("S[Identity,(and)Identity]").splitlines()[0] == (
        '"(and)" before an item means nothing to Sequential'
    )
    assert refused("Shows(a,3,4)").splitlines()[0] == "Shows takes 2 parameters, got one more"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Identity[Identity]", "Identity takes no brackets"),
        ("DI", "DI needs brackets"),
        ("With[Identity]", "With takes 2 backends, got 1"),
        ("IoC[Identity;Identity;Identity]", "IoC takes [backend, …; backend], got 3 phases"),
        ("Forward[S[Identity]]", "Forward takes the name of an instance here, not an expression"),
        ("Reflect[S[Identity]]", "Reflect takes the name of a key here, not an expression"),
    ],
)
def test_a_class_declares_its_brackets(text: str, message: str) -> None:
    """The number of items and phases, and whether an item is a backend, an instance name or a parameter key."""
    assert refused(text).splitlines()[0] == message


@pytest.mark.parametrize(
    "name", ["Batching", "InstanceDispatcher", "Register[Identity]", "InstancesRegister[Identity]"]
)
def test_scheduling_backends_are_only_valid_in_an_init_expression(name: str) -> None:
    head = name.partition("[")[0]
    for config in (name, {"backend": "Identity", "entrypoint": name}):
        assert refused(config).splitlines()[0] == (
            f"{head} schedules a node and is only allowed in a node's init expression"
        )


def test_a_template_is_replaced_with_the_value_of_a_parameter_of_the_node() -> None:
    """`{node_name}` always exists. The error for a missing key names it."""
    config = {"backend": "Shows(x={word},n={number})", "word": "w", "number": 5}
    assert answer(config) == ("w", 5)
    assert answer("Shows(x={node_name})") == ("default", 0)
    assert answer({"only": {"backend": "Shows(x={node_name})"}}) == ("only", 0)
    assert answer("Shows(x='{node_name}')") == ("{node_name}", 0)
    del config["word"]
    assert "{word}" in refused(config).splitlines()[0]


@pytest.mark.parametrize("text", ["S[" * 201 + "Identity" + "]" * 201, f"Log({'x' * (1 << 20)})"])
def test_an_expression_that_is_too_deep_or_too_long_is_an_error(text: str) -> None:
    """The limits are 200 levels and 1 MiB; exceeding them never overflows the stack."""
    with pytest.raises(hami.ConfigError):
        hami.pipe({"backend": text})
    assert answer("S[" * 200 + "Identity" + "]" * 200, 1) == 1


def test_a_class_declares_its_parameters() -> None:
    """A declaration has a name, a type, a default or `required`, choices or a range, and help."""

    class Every(Shows):
        a: bool
        b: int
        c: float
        d: str
        e: pathlib.Path
        f: list[str]
        g: hami.types.Duration
        h: hami.types.ByteSize
        mode: Literal["fast", "exact"] = "fast"

    hami.register("Every")(Every)
    params = {param["name"]: param for param in hami.backends()["Every"].params or []}
    types = ["bool", "int", "float", "str", "path", "list", "duration", "bytesize"]
    assert [params[name]["type"] for name in "abcdefgh"] == types
    assert [params[name]["required"] for name in ("a", "x")] == [True, False]
    assert (params["x"]["default"], params["x"]["help"]) == ("default", "the text to show")
    assert params["mode"]["choices"] == ["fast", "exact"]
    count = next(param for param in hami.backends()["LoopCondition"].params or [] if param["name"] == "count")
    assert (count["least"], count["most"], count["default"]) == (1, None, 1000)


@pytest.mark.parametrize("value", ["4", '"4"', "4.0"])
def test_an_int_may_be_written_in_three_ways_in_files_dicts_and_expressions(value: str, tmp_path: Path) -> None:
    """`4`, `"4"` and `4.0` are the same int; anything else is an error."""
    (tmp_path / "p.toml").write_text(f'backend = "Shows"\nn = {value}\n')
    assert answer(tmp_path / "p.toml") == ("default", 4)
    assert answer(f"Shows(n={value})") == ("default", 4)
    for n in (4, "4", 4.0):
        assert answer({"backend": "Shows", "n": n}) == ("default", 4)
    for wrong in ("four", 4.5, True):
        assert "of Shows takes int" in refused({"backend": "Shows", "n": wrong})


def test_a_duration_needs_a_unit_and_a_python_backend_gets_seconds() -> None:
    """0 needs no unit."""
    shown: list[float] = []

    class Waits(hami.Backend):
        wait: hami.types.Duration

        def init(self, options: Any) -> None:
            shown.append(self.wait)

        def forward(self, batch: list[Any]) -> None: ...

    hami.register("Waits")(Waits)
    for wait in ("5ms", "2s", 0, "0"):
        hami.pipe({"backend": "Waits", "wait": wait}).close()
    assert shown == [0.005, 2.0, 0.0, 0.0]
    for bare in (5, "5", 0.5):
        with pytest.raises(hami.ConfigError, match='takes a duration with a unit, as "5ms"'):
            hami.pipe({"backend": "Waits", "wait": bare})


def test_a_key_that_nothing_uses_is_an_error_with_a_suggestion() -> None:
    """A backend of that node must use a node key; at least one node must use a `[global]` key."""
    message = refused({"backend": "Shows", "instance_nun": 1}).splitlines()[0]
    assert message.startswith('nothing uses the key "instance_nun"; did you mean "instance_num"')
    used = {"max": 2, "word": "w", "post": "Identity", "model": "a.onnx", "x": "of a backend that is not built"}
    assert answer({"backend": "S[Add(k={word}),Reflect[post],ModelLoader[(.onnx)Identity,(.trt)Shows]]", **used}) == 0
    nodes = {"a": {"backend": "Shows", "next": "b"}, "b": {"backend": "Identity"}}
    assert answer({**nodes, "global": {"x": "of one"}}) == ("of one", 0)
    assert 'nothing uses the key "y"' in refused({**nodes, "global": {"y": 1}})


def test_all_mistakes_are_reported_at_once_before_anything_is_loaded() -> None:
    journal = noting("A")
    message = refused({"backend": "S[A,Shows(n=four),Log,Identity[A]]", "max": "many"})
    for mistake in (
        'parameter "n" of Shows takes int, got "four"',
        'parameter "message" of Log is missing',
        "Identity takes no brackets",
        'parameter "max" of InstanceDispatcher takes int of at least 1 or "auto", got "many"',
    ):
        assert mistake in message
    assert journal == []


def test_reserved_top_level_names_are_neither_nodes_nor_keys() -> None:
    for name in ("global", "providers", "requires", "extends", "entrypoint", "dag_entrypoint"):
        assert name in refused({"backend": "Identity", name: 3})
    with hami.pipe({"n": {"backend": "Identity"}, "global": {"backend": "Shows"}}) as pipe:
        assert list(pipe.stats()) == ["n"]


def test_init_and_node_entrypoint_are_the_same_key_and_dag_entrypoint_is_for_several_nodes() -> None:
    each(lambda number: number + 1, "AddOne")
    made = "List[InstancesRegister[S[AddOne,AddOne]], Register[InstanceDispatcher]]"
    assert answer({"init": made}, 1) == answer({"node_entrypoint": made}, 1) == 3
    with pytest.raises(hami.ConfigError):
        hami.pipe({"init": made, "node_entrypoint": made})
    nodes: dict[str, Any] = {"a": {"backend": "AddOne"}, "dag_entrypoint": "S[node.a,node.a]"}
    assert answer({**nodes, "b": {"backend": "AddOne"}}, 1) == 3
    assert answer(nodes, 1) == 2


def test_entrypoint_serves_several_nodes_without_a_dag_entrypoint() -> None:
    """`dag_entrypoint` has precedence. In `Forward`, a bare node name means `node.<node>`."""
    nodes = {"a": {"backend": "Shows(x=a)"}, "b": {"backend": "Shows(x=b)"}}
    assert answer({**nodes, "entrypoint": "Forward[b]"}) == ("b", 0)
    assert answer({**nodes, "entrypoint": "Forward[b]", "dag_entrypoint": "Forward[a]"}) == ("a", 0)


def test_dag_entrypoint_is_ignored_with_one_node() -> None:
    assert answer({"a": {"backend": "Shows(x=a)"}, "dag_entrypoint": "Forward[none]"}) == ("a", 0)
