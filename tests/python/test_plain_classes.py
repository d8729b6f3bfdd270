"""What programs of torchpipe rely on: plain classes and objects, events of several requests, spellings of keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import hami
import pytest
from rows import refused
from running import TIMEOUT


class Echo:
    """Returns the keys of its node."""

    def init(self, params: dict[str, str], options: Any) -> None:
        self.params = params

    def forward(self, ios: list[Any]) -> None:
        for io in ios:
            io["result"] = self.params


class Batch:
    max = 3

    def min(self) -> int:
        return 2

    def forward(self, ios: list[Any]) -> None:
        for io in ios:
            io["result"] = len(ios)


class Count:
    """One object that several nodes call."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def init(self, params: Any, options: Any) -> None:
        raise AssertionError("an object of the program is not initialised again")

    def forward(self, ios: list[Any]) -> None:
        for io in ios:
            self.calls.append(io["data"])
            io["result"] = -io["data"]


class Sized(hami.Backend):
    """Returns its size."""

    width: Annotated[int, hami.types.Alias("resize_w"), "in pixels"]
    height: Annotated[int, hami.types.Alias("resize_h"), hami.types.Alias("h")] = 7

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = (self.width, self.height)


@pytest.fixture(autouse=True)
def _registered() -> None:
    hami.register("Echo", Echo)
    hami.register("Sized", Sized)


def result_of(config: Any, data: Any = 1) -> Any:
    with hami.pipe(config) as pipe:
        return pipe({"data": data}, timeout=TIMEOUT)["result"]


# ---- plain classes and objects ----


def test_a_plain_class_has_every_key_of_its_node_as_text() -> None:
    node = {"backend": "Echo", "instance_num": 2, "rate": 0.5, "on": True, "sizes": [1, 2], "name": "x"}
    assert result_of({"global": {"shared": 3, "rate": 9}, "a": node}) == {
        **{"backend": "Echo", "instance_num": "2", "rate": "0.5", "on": "1", "sizes": "1,2", "name": "x"},
        **{"shared": "3", "node_name": "a"},
    }


def test_an_argument_in_the_expression_wins_over_the_key_of_the_node() -> None:
    assert result_of({"backend": "Echo(rate=2)", "rate": 1})["rate"] == "2"


def test_a_plain_class_takes_named_arguments_only() -> None:
    assert refused({"backend": "Echo(3)"}) == (
        'Echo takes named parameters, got "3"\n  in  Echo(3)   (node "default")\n           ^\n  write name=value'
    )


def test_max_and_min_of_a_plain_class_bound_its_batches() -> None:
    hami.register("Batch", Batch)
    with hami.pipe({"backend": "Batch", "batching_timeout": 60_000}) as pipe:
        requests = pipe([{"data": number} for number in range(6)], timeout=TIMEOUT)
    assert [request["result"] for request in requests] == [3] * 6


def test_register_is_an_attribute_of_pipe_and_returns_the_class() -> None:
    assert hami.pipe.register("Echo2", Echo) is Echo
    assert result_of({"backend": "Echo2", "a": 1})["a"] == "1"


def test_a_backend_class_can_be_registered_with_a_name_as_first_argument() -> None:
    assert hami.register("Sized2", Sized) is Sized
    assert result_of("Sized2(width=3)") == (3, 7)


def test_an_object_is_a_named_instance_that_every_pipe_shares() -> None:
    count = Count()
    assert hami.register("counter", count) is count
    assert result_of("Forward[counter]", 4) == -4
    assert result_of("S[counter,Identity]", 5) == -5
    assert result_of({"a": {"backend": "Proxy[counter]", "next": "b"}, "b": {"backend": "Identity"}}, 6) == -6
    assert count.calls == [4, 5, 6]


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        (
            "X",
            3,
            'hami.register("X", …) takes a class or an object with a method forward(self, ios), got the object of int',
        ),
        ("X", dict, 'hami.register("X", …) takes a class or an object with a method forward(self, ios), got dict'),
        ("a b", Echo, "'a b' is not a valid backend name: use letters, digits and _, not starting with a digit"),
        (
            "X",
            type("Needs", (), {"__init__": lambda self, size, scale=1: None, "forward": print}),
            "Needs.__init__ requires size, but the pipe creates the object without arguments; give each a default, "
            "or register an object",
        ),
    ],
)
def test_what_cannot_be_registered_is_named(name: str, target: Any, message: str) -> None:
    with pytest.raises(hami.PluginError) as caught:
        hami.register(name, target)
    assert str(caught.value) == message


def test_the_plain_object_of_a_pipe_is_closed_with_it() -> None:
    closed = []
    hami.register("Closes", type("Closes", (Echo,), {"close": lambda self: closed.append(self)}))
    result_of("Closes")
    assert len(closed) == 1


# ---- events of several requests ----


def test_an_event_counts_the_requests_of_a_list() -> None:
    event = hami.Event(3)
    done: list[hami.Event] = []
    event.add_done_callback(done.append)
    with hami.pipe("Identity") as pipe:
        requests = [{"data": number, "event": event} for number in range(3)]
        pipe(requests)
        assert event.wait(TIMEOUT)
    assert [request["result"] for request in requests] == [0, 1, 2]
    assert (event.value(), event.exception(), done) == (None, None, [event])


def test_an_event_of_several_completions_has_the_first_exception() -> None:
    event = hami.Event(2)
    assert event.fail(ValueError("first"))
    assert (event.done(), event.exception()) == (False, None)
    assert event.fail(ValueError("second"))
    assert event.done()
    assert str(event.exception()) == "first"
    assert not event.notify()


def test_an_event_is_claimed_by_as_many_requests_as_its_count() -> None:
    event = hami.Event(2)
    with hami.pipe("Identity") as pipe:
        pipe([{"data": 1, "event": event}, {"data": 2, "event": event}])
        with pytest.raises(hami.RequestError):
            pipe({"data": 3, "event": event})
    with pytest.raises(hami.ConfigError) as caught:
        hami.Event(0)
    assert str(caught.value) == "the count of an Event must be an int of at least 1, got 0"


# ---- spellings of parameters ----


@pytest.mark.parametrize(
    "config",
    [
        {"backend": "Sized", "resize_w": "5", "h": 6},
        {"backend": "Sized(resize_w=5, resize_h=6)"},
        {"a": {"backend": "Sized", "Sized.resize_w": 5, "Sized": {"h": 6}}},
        {"global": {"width": 9, "height": 9}, "a": {"backend": "Sized", "resize_w": 5, "resize_h": 6}},
        {"global": {"resize_w": 5, "h": 6}, "a": {"backend": "Sized"}},
    ],
)
def test_an_alias_is_another_spelling_at_every_place(config: Any) -> None:
    assert result_of(config) == (5, 6)


def test_both_spellings_in_one_node_are_an_error() -> None:
    assert refused({"backend": "S[Sized,Sized]", "width": 1, "resize_w": 2}) == (
        '"width" and "resize_w" are the same parameter\n'
        '  in  resize_w = 2   (node "default")\n'
        "      ^^^^^^^^\n"
        "  remove one of them"
    )
    assert refused("Sized(width=1,resize_w=2)") == (
        'parameter "width" of Sized is given twice\n'
        '  in  Sized(width=1,resize_w=2)   (node "default")\n'
        "                             ^"
    )


def test_a_generated_name_passes_aliases_on() -> None:
    hami.generate("Small", "S[Sized]", resize_w=3)
    assert result_of("Small") == (3, 7)
    assert result_of("Small(resize_w=4,h=1)") == (4, 1)


def test_a_spelling_that_two_parameters_have_is_refused() -> None:
    class Twice(hami.Backend):
        one: Annotated[int, hami.types.Alias("same")] = 1
        two: Annotated[int, hami.types.Alias("same")] = 1

        def forward(self, batch: list[Any]) -> None: ...

    with pytest.raises(hami.PluginError, match='Twice: parameter "same" is declared twice'):
        hami.register(Twice)


def test_a_misspelt_alias_is_suggested() -> None:
    assert refused({"backend": "Sized", "width": 1, "resize_hh": 2}).splitlines()[0] == (
        'nothing uses the key "resize_hh"; did you mean "resize_h" or "resize_w"?'
    )


def test_the_command_line_shows_aliases(capsys: pytest.CaptureFixture[str]) -> None:
    from hami._cli.main import main

    assert main(["backends", "Sized"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "  width: int       in pixels; also spelled resize_w",
        "  height: int = 7  also spelled resize_h; also spelled h",
    ]


# ---- configurations ----


def test_keys_above_the_first_table_are_keys_for_all_nodes(tmp_path: Path) -> None:
    file = tmp_path / "resnet.toml"
    file.write_text(
        'batching_timeout = 4\nresize_w = 3\n[a]\nbackend = "Sized"\nnext = "b"\n[b]\nbackend = "Identity"\n'
    )
    assert result_of(str(file)) == (3, 7)


@pytest.mark.parametrize("key", ["init", "node_entrypoint"])
def test_expressions_above_the_first_table_are_those_of_all_nodes(key: str) -> None:
    build = "List[InstancesRegister[Reflect[backend]],Register[DI[Batching,InstanceDispatcher]]]"
    params = result_of({key: build, "backend": "Echo", "a": {"next": "b"}, "b": {"backend": "Identity"}})
    assert params == {"node_name": "a", "next": "b", "backend": "Echo", "node_entrypoint": build}


def test_a_key_above_the_first_table_and_in_global_is_an_error() -> None:
    config = {"resize_w": 1, "global": {"resize_w": 2}, "a": {"backend": "Sized"}}
    assert refused(config) == (
        '"resize_w" is given twice: above the first table and in [global]\n'
        "  in  resize_w = 1\n      ^^^^^^^^\n  remove one of them"
    )


def test_a_queue_of_the_program_is_that_of_each_pipe_it_is_given_to() -> None:
    queue = hami.Queue(name="net_out")
    with hami.pipe("Send(net_out)", {"net_out": queue}) as pipe:
        pipe({"data": "page"})
        assert queue.get(timeout=TIMEOUT) == "page"
        pipe.replace("S[Identity,Send(net_out)]")
        pipe({"data": "next"})
    assert queue.get(timeout=TIMEOUT) == "next"
    with hami.pipe("Send(net_out)") as pipe:
        pipe({"data": "own"})
        assert len(queue) == 0
