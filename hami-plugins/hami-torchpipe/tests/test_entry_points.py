"""The entry points `init`, `create`, `get`, `parse` and `default_queue`."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import hami
import pytest

import hami_torchpipe as torchpipe
from hami_torchpipe import programs

TIMEOUT = 60.0


class Echo:
    """Returns the keys of its node."""

    def init(self, params: dict[str, str], options: Any) -> None:
        self.params = params

    def forward(self, ios: list[Any]) -> None:
        for io in ios:
            io["result"] = self.params


class Negate:
    """One object that several nodes call."""

    def forward(self, ios: list[Any]) -> None:
        for io in ios:
            io["result"] = -io["data"]


@pytest.fixture(autouse=True)
def _registered() -> None:
    torchpipe.register("Echo", Echo)


def result_of(config: Any, data: Any = 1) -> Any:
    with torchpipe.pipe(config) as pipe:
        return pipe({"data": data}, timeout=TIMEOUT)["result"]


def test_init_builds_a_pipe_of_one_expression() -> None:
    with torchpipe.init("S[Echo,Identity]", {"color": "rgb"}) as backend:
        io = torchpipe.Dict({"data": 1})
        backend(io)
        assert io["result"]["color"] == "rgb"


def test_create_then_init_takes_a_configuration_as_options() -> None:
    config = {"a": {"backend": "Identity", "next": "b"}, "b": {"backend": "Echo", "width": "5"}}
    with torchpipe.create("Interpreter").init({}, {"config": config}) as pipe:
        assert pipe({"data": 1})["result"]["width"] == "5"


def test_init_refuses_options_that_nothing_reads() -> None:
    with pytest.raises(hami.ConfigError) as caught:
        torchpipe.init("Identity", {}, {"engine": 1})
    assert str(caught.value) == (
        'init takes options only as {"config": …} of "Interpreter", got \'engine\'; give the keys of the node as params'
    )


def test_a_registered_pipe_is_found_by_name_and_by_forward() -> None:
    with torchpipe.init("Echo", {"width": 2}, register_name="echo_pipe") as pipe:
        assert torchpipe.get("echo_pipe") is pipe
        assert result_of("Forward[echo_pipe]")["width"] == "2"


def test_a_failure_in_a_registered_pipe_fails_only_that_request() -> None:
    with torchpipe.init("FanOut[Identity]", register_name="fan_pipe"), torchpipe.pipe("Forward[fan_pipe]") as pipe:
        requests: list[dict[str, Any]] = [{"data": [1]}, {"data": 7}]
        with pytest.raises(hami.BatchError) as caught:
            pipe(requests, timeout=TIMEOUT)
    assert [index for index, _ in caught.value.errors] == [1]
    assert requests[0]["result"] == [1]


def test_get_of_an_unknown_name_suggests_a_near_one() -> None:
    torchpipe.register("counter", Negate())
    with pytest.raises(hami.NotFound) as caught:
        torchpipe.get("countr")
    assert str(caught.value) == (
        'no object is registered as "countr"; did you mean counter?; register it with register("countr", object); '
        "to call a node of a pipe, give the request its name under the key node_name"
    )


def test_default_queue_is_the_queue_of_that_name_in_pipes_that_are_built_later() -> None:
    queue = torchpipe.default_queue("net_out")
    assert torchpipe.default_queue("net_out") is queue
    assert result_of("Send(net_out)", "page") == "page"
    assert queue.get(timeout=TIMEOUT) == "page"
    result_of("Send", "plain")
    assert torchpipe.default_queue().name == "default"
    assert result_of("S[Send,Identity]", "shared") == "shared"
    assert torchpipe.default_queue().get(timeout=TIMEOUT) == "shared"


def test_a_closed_default_queue_is_replaced() -> None:
    queue = torchpipe.default_queue("once")
    queue.close()
    assert torchpipe.default_queue("once") is not queue


def test_an_object_is_found_until_a_class_takes_its_name() -> None:
    negate = Negate()
    assert torchpipe.pipe.register("negate", negate) is negate
    assert torchpipe.get("negate") is negate
    assert result_of("Forward[negate]", 4) == -4
    torchpipe.register("negate", Negate)
    with pytest.raises(hami.NotFound):
        torchpipe.get("negate")


def test_parse_gives_what_a_pipe_takes(tmp_path: Path) -> None:
    file = tmp_path / "resnet.toml"
    file.write_text('width = 4\n[a]\nbackend = "Echo"\nnext = "b"\n[b]\nbackend = "Identity"\n[global]\nheight = 3\n')
    config = torchpipe.parse(file)
    assert config == {
        "a": {"backend": "Echo", "next": "b"},
        "b": {"backend": "Identity"},
        "global": {"height": 3, "width": 4},
    }
    config["a"]["width"] = 9
    assert {key: result_of(config)[key] for key in ("width", "height")} == {"width": "9", "height": "3"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"[a\n", ".*line 1"), (b'a = "\xff"', ".*utf-8"), (b"a." * 50_000 + b"a = 1", "a key must")],
)
def test_parse_names_the_file_that_is_not_toml(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_bytes(content)
    with pytest.raises(hami.ConfigError, match=f"wrong.toml is not valid TOML: {reason}"):
        torchpipe.parse(str(file))


def test_kvstorage_is_the_request_store() -> None:
    assert torchpipe.KVStorage is hami.types.RequestStore


@pytest.mark.parametrize("name", ["Dict", "create", "default_queue", "get", "init", "parse", "pipe", "register"])
def test_the_example_of_a_docstring_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = doctest.DocTestFinder(recurse=False).find(
        getattr(programs, name), name, globs={"hami_torchpipe": torchpipe}
    )
    assert example.examples
    output: list[str] = []
    assert doctest.DocTestRunner().run(example, out=output.append).failed == 0, "".join(output)
