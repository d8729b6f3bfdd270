"""Models that load while requests and other changes come: for them, for other models, and beyond the limits."""

from __future__ import annotations

import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import hami
import pytest
from conftest import say
from counted_models import Loaded
from prometheus_client.parser import text_string_to_metric_families

from hami_serve import AllRounder, State
from hami_serve.serving import Serving

BODY = {"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]}
LONG_S = 60


class Load:
    """Holds the loads of the backend TestLoads until it is opened, and counts them."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.opened = threading.Event()
        self.count = 0


LOADS: dict[str, Load] = {}
LOADED = Loaded()


@hami.register
class TestLoads(hami.Backend):
    load: str
    word: str = ""

    def init(self, options):
        LOADED.add(1)
        held = LOADS[self.load]
        held.count += 1
        held.begun.release()
        if not held.opened.wait(LONG_S):
            LOADED.add(-1)
            raise TimeoutError("the test has not opened it")
        if self.word == "broken":
            LOADED.add(-1)
            raise RuntimeError("the file of the model is damaged")

    def forward(self, batch):
        for item in batch:
            item["result"] = self.word or self.load

    def close(self):
        LOADED.add(-1)


@pytest.fixture
def load():
    """load(name) makes a model with the backend TestLoads; every load ends with the test."""
    LOADS.clear()
    LOADED.__init__()

    def make(name: str, *, opened: bool = False, **options: object) -> dict[str, object]:
        LOADS[name] = Load()
        if opened:
            LOADS[name].opened.set()
        return {"source": {"backend": "TestLoads", "load": name}, **options}

    yield make
    for each in LOADS.values():
        each.opened.set()


@contextmanager
def asking(server, name: str):
    """Send a request from a client of its own; the block gets its connection, which it may close."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LONG_S)
    connection.request("POST", f"/v2/models/{name}/infer", json.dumps(BODY))
    try:
        yield connection
    finally:
        connection.close()


def in_flight(server) -> dict[str, float]:
    status, text = server.get("/metrics")
    assert status == 200
    return {
        sample.labels["model"]: sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name == "hami_serve_requests_in_flight"
    }


def until(condition) -> None:
    """Wait until a condition holds that no event tells."""
    for _ in range(LONG_S * 100):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError(condition)


def infer(server, name: str, **parameters: object):
    status, answer = server.post(f"/v2/models/{name}/infer", {**BODY, "parameters": parameters})
    return status, answer["outputs"][0]["data"][0] if status == 200 else answer["error"]


def test_a_model_whose_plugin_cannot_say_what_it_takes_fails_alone(start, monkeypatch):
    def signature(description):
        if "is wrong" in str(description):
            raise hami.ConfigError("hami_signature of hami-new failed for New")

    monkeypatch.setattr(hami.config, "signature", signature)
    server = start({"good": say("word"), "bad": say("is wrong"), "other": say("else")})
    assert [server.post(f"/v2/models/{name}/infer", BODY)[0] for name in ("good", "bad", "other")] == [200, 503, 200]
    assert server.get("/v2/health/ready")[0] == 200
    (failed,) = (each for each in server.serving.rounder.models() if each.state is State.FAILED)
    assert (failed.handle.component, failed.reason) == ("bad", "ConfigError: hami_signature of hami-new failed for New")


def test_a_client_that_leaves_while_its_model_loads_is_not_counted_any_more(start, load):
    with AllRounder({"a": load("a")}, lazy=True) as rounder:
        server = start(rounder, allow_control=True)
        with asking(server, "a"):
            assert LOADS["a"].begun.acquire(timeout=LONG_S)
            assert in_flight(server) == {"a": 1}
        until(lambda: in_flight(server) == {"a": 0})
        LOADS["a"].opened.set()
        assert infer(server, "a") == (200, "a")
        assert in_flight(server) == {"a": 0}
        assert LOADS["a"].count == 1
        assert rounder.registry.wait_idle(rounder.registry.find("a"), 0)


def test_all_requests_for_a_model_that_loads_wait_for_the_same_load(start, load):
    with AllRounder({"a": load("a"), "b": load("b", opened=True)}, lazy=True) as rounder:
        server = start(rounder)
        with ThreadPoolExecutor(20) as clients:
            waiting = [clients.submit(infer, server, "a") for _ in range(20)]
            until(lambda: in_flight(server)["a"] == 20)
            assert infer(server, "b") == (200, "b")
            LOADS["a"].opened.set()
            assert [each.result(LONG_S) for each in waiting] == [(200, "a")] * 20
        assert LOADS["a"].count == 1
        assert in_flight(server) == {"a": 0, "b": 0}


@pytest.mark.parametrize("before", ["unloaded", "failed", "new"])
def test_requests_wait_for_a_load_that_a_client_has_asked_for(start, load, tmp_path, before):
    """So a client that unloads and loads a model loses no request of others after its load has begun."""
    load("a", opened=True)
    file = tmp_path / "a.toml"
    text = '[node]\nbackend = "TestLoads"\nload = "a"\n'
    file.write_text(text if before == "unloaded" else '[node]\nbackend = "Identity"\n')
    server = start(str(tmp_path), allow_control=True)
    assert server.get("/v2/models/a/ready")[0] == 200
    if before == "unloaded":
        assert server.post("/v2/repository/models/a/unload", {}) == (200, {})
        assert infer(server, "a") == (503, '"a" version "1" is unloaded; load it first')
    elif before == "failed":
        file.write_text('[node]\nbackend = "TestBroken"\n')
        assert server.post("/v2/repository/models/a/unload", {})[0] == 200
        assert server.post("/v2/repository/models/a/load", {})[0] == 500
        assert infer(server, "a")[0] == 503
    name = "b" if before == "new" else "a"
    (tmp_path / f"{name}.toml").write_text(text)
    LOADS["a"] = Load()
    with ThreadPoolExecutor(5) as clients:
        loading = clients.submit(server.post, f"/v2/repository/models/{name}/load", {})
        assert LOADS["a"].begun.acquire(timeout=LONG_S)
        waiting = [clients.submit(infer, server, name) for _ in range(4)]
        until(lambda: in_flight(server)[name] == 4)
        assert server.get(f"/v2/models/{name}/ready")[0] == 503
        LOADS["a"].opened.set()
        assert [each.result(LONG_S) for each in waiting] == [(200, "a")] * 4
        assert loading.result(LONG_S) == (200, {})
    assert in_flight(server)[name] == 0


def test_requests_that_wait_for_a_load_that_fails_are_answered(start, load, tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('[node]\nbackend = "Identity"\n')
    server = start(str(tmp_path), allow_control=True)
    assert server.post("/v2/repository/models/a/unload", {}) == (200, {})
    load("a")
    file.write_text('[node]\nbackend = "TestLoads"\nload = "a"\nword = "broken"\n')
    with ThreadPoolExecutor(5) as clients:
        loading = clients.submit(server.post, "/v2/repository/models/a/load", {})
        assert LOADS["a"].begun.acquire(timeout=LONG_S)
        waiting = [clients.submit(infer, server, "a") for _ in range(4)]
        until(lambda: in_flight(server)["a"] == 4)
        LOADS["a"].opened.set()
        assert {each.result(LONG_S)[0] for each in waiting} == {503}
        assert loading.result(LONG_S)[0] == 500


def test_a_request_waits_for_a_load_no_longer_than_its_timeout(start, load):
    with AllRounder({"a": load("a")}, lazy=True) as rounder:
        server = start(rounder)
        status, error = infer(server, "a", timeout=1000)
        assert (status, error) == (504, 'the request timed out while the model "a:1#2" was loaded')
        assert in_flight(server) == {"a": 0}


def test_a_load_that_fails_answers_all_that_wait_and_is_tried_again_later(start, monkeypatch):
    monkeypatch.setattr("hami_serve.registry.AGAIN_S", LONG_S)
    with AllRounder({"a": "TestBroken"}, lazy=True) as rounder:
        server = start(rounder)
        failed = (503, '"a" version "1" failed to load: RuntimeError; the log of the server has the message')
        assert infer(server, "a") == failed
        (first,) = rounder["a"].handles
        assert server.get("/v2/models/a/ready")[0] == 503
        assert infer(server, "a") == failed
        assert rounder["a"].handles == [first]
        rounder.registry.find("a").again_at = 0.0
        assert infer(server, "a") == failed
        assert rounder["a"].handles != [first]


@hami.register
class TestExits(hami.Backend):
    def init(self, options):
        raise SystemExit("no license")

    def forward(self, batch): ...


@pytest.mark.parametrize("wrong", ["TestBroken", "TestExits"])
def test_a_model_that_cannot_be_built_fails_alone_if_others_wait_for_their_first_request(start, wrong):
    serving = Serving({"a": wrong, "b": "Identity", "c": "Identity"}, max_loaded=1)
    serving.start()
    try:
        models = {each.handle.component: each.state for each in serving.rounder.registry.models()}
        assert models == {"a": State.FAILED, "b": State.UNLOADED, "c": State.UNLOADED}
        assert serving.rounder.infer({"data": 1}, ["b"])["b"]["result"] == 1
    finally:
        serving.stop()


def test_requests_that_are_split_by_weight_are_answered_with_one_model_loaded(start, load):
    versions = {"1": load("one", opened=True)["source"], "2": load("two", opened=True)["source"]}
    source = {"a": {"versions": versions, "weights": {"1": 1, "2": 1}}}
    with AllRounder(source, max_loaded=1) as rounder:
        server = start(rounder)
        with ThreadPoolExecutor(20) as clients:
            found = list(clients.map(lambda _: infer(server, "a"), range(20)))
        assert sorted(found) == [(200, "one")] * 10 + [(200, "two")] * 10
        assert LOADED.most == 1


@pytest.mark.parametrize("limit", [{"max_loaded": 2}, {"memory_budget": 25}])
def test_models_that_load_together_keep_the_limits(start, load, limit):
    names = [f"m{number}" for number in range(10)]
    with AllRounder({name: load(name, opened=True, memory=10) for name in names}, **limit) as rounder:
        server = start(rounder)
        assert [str(model.state) for model in rounder.models()] == ["ready"] * 2 + ["unloaded"] * 8
        with ThreadPoolExecutor(40) as clients:
            found = list(clients.map(lambda name: infer(server, name), names * 4))
        assert found == [(200, name) for name in names * 4]
        assert LOADED.most == 2
        assert set(in_flight(server).values()) == {0}
        assert server.get("/v2/health/ready")[0] == 200


def test_a_model_above_the_memory_budget_is_an_error(load):
    with pytest.raises(hami.ConfigError, match='"a" version "1" has memory = 30, more than the memory_budget of 25'):
        AllRounder({"a": load("a", memory=30)}, memory_budget=25)


def test_a_request_in_all_components_runs_each_within_the_limit(load):
    source = {name: load(name, opened=True) for name in ("a", "b", "c")}
    with AllRounder(source, max_loaded=1, drain_timeout=LONG_S) as rounder:
        assert {name: each["result"] for name, each in rounder.infer({"data": 1}).items()} == {
            each: each for each in source
        }
        assert LOADED.most == 1


def test_a_load_that_hangs_holds_up_nothing_else(start, load):
    """More loads hang than the pool of the event loop has threads."""
    hung = {f"hung{number}": load(f"hung{number}") for number in range(40)}
    source = {**hung, "cold": load("cold", opened=True), "ready": load("ready", opened=True)}
    with AllRounder(source, lazy=True) as rounder, ThreadPoolExecutor(40) as clients:
        server = start(rounder, allow_control=True)
        assert infer(server, "ready") == (200, "ready")
        waiting = [clients.submit(infer, server, name) for name in list(hung)[:20]]
        waiting += [clients.submit(server.post, f"/v2/repository/models/{name}/load", {}) for name in list(hung)[20:30]]
        waiting += [clients.submit(server.post, "/v2/repository/models/hung20/load", {}) for _ in range(10)]
        for name in list(hung)[:30]:
            assert LOADS[name].begun.acquire(timeout=LONG_S)
        assert in_flight(server)["hung0"] == 1
        assert infer(server, "cold") == (200, "cold")
        assert server.post("/v2/repository/models/cold/load", {}) == (200, {})
        assert server.post("/v2/repository/models/ready/unload", {}) == (200, {})
        assert server.get("/v2/models/stats")[0] == 200
        for each in LOADS.values():
            each.opened.set()
        assert all(each.result(LONG_S)[0] == 200 for each in waiting)


def test_close_does_not_wait_for_a_load_and_its_model_ends_when_it_was_built(load):
    rounder = AllRounder({"a": load("a")}, lazy=True)
    with ThreadPoolExecutor(1) as callers:
        waiting = callers.submit(rounder.infer, {"data": 1}, ["a"])
        assert LOADS["a"].begun.acquire(timeout=LONG_S)
        rounder.close()
        with pytest.raises(hami.PipeClosed, match="the AllRounder is closed"):
            waiting.result(LONG_S)
        assert LOADED.now == 1
        LOADS["a"].opened.set()
        until(lambda: LOADED.now == 0)


def test_a_change_takes_the_place_of_a_load_that_hangs(load):
    with AllRounder({"a": load("a")}, lazy=True) as rounder, ThreadPoolExecutor(1) as callers:
        waiting = callers.submit(rounder.infer, {"data": 1}, ["a"])
        assert LOADS["a"].begun.acquire(timeout=LONG_S)
        rounder.submit("a", say("new"))
        assert waiting.result(LONG_S)["a"]["result"] == "new on cpu"
        LOADS["a"].opened.set()
        until(lambda: LOADED.now == 0)
        assert [model.state for model in rounder.models()] == [State.READY]


def test_a_model_that_leaves_for_another_one_is_loaded_again_though_it_still_drains(start, load, gate):
    held = gate("held")
    source = {"a": {"backend": "TestGate", "gate": "held"}, "b": load("b", opened=True)}
    with AllRounder(source, max_loaded=1) as rounder, ThreadPoolExecutor(3) as clients:
        server = start(rounder)
        first = clients.submit(infer, server, "a")
        assert held.begun.acquire(timeout=LONG_S)
        other = clients.submit(infer, server, "b")
        until(lambda: any(model.state is State.DRAINING for model in rounder.models()))
        again = clients.submit(infer, server, "a")
        until(lambda: in_flight(server).get("a") == 1)
        held.opened.set()
        assert [each.result(LONG_S) for each in (first, other, again)] == [(200, "held"), (200, "b"), (200, "held")]


def test_a_change_that_fails_leaves_a_model_that_was_unloaded_for_another_one(load):
    with AllRounder({"a": load("a", opened=True), "b": say("b")}, max_loaded=1) as rounder:
        assert rounder.infer({"data": 1}, ["b"])["b"]["result"] == "b on cpu"
        with pytest.raises(RuntimeError, match="damaged"):
            rounder.submit("a", "TestBroken")
        assert rounder.infer({"data": 1}, ["a"])["a"]["result"] == "a"
