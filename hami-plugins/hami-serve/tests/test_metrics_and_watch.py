"""Prometheus metrics, and folders that change while they are served."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import hami
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hami_serve import AllRounder
from hami_serve.serving import Serving
from hami_serve.watching import Watcher


@hami.register
class TestReads(hami.Backend):
    """Returns the text that a file had when it was loaded."""

    word: str

    def init(self, options):
        self.text = Path(self.word).read_text()

    def forward(self, batch):
        for item in batch:
            item["result"] = self.text


LABELS = ("model", "version", "outcome", "node")


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(sample.labels[key] for key in LABELS if key in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_count_requests_and_nodes(start):
    server = start({"any": "Identity", "raises": "TestRaises"})
    request = {"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]}
    for name in ("any", "any", "raises"):
        server.post(f"/v2/models/{name}/infer", request)
    status, headers, text = server.call("GET", "/metrics")
    assert (status, headers.get_content_type()) == (200, "text/plain")
    found = samples(text.decode())
    assert found["hami_serve_model_ready", "any", "1"] == 1
    assert found["hami_serve_requests_total", "any", "1", "success"] == 2
    assert found["hami_serve_requests_total", "raises", "1", "failure"] == 1
    assert found["hami_node_completed_total", "any", "1", "default"] == 2
    assert found["hami_node_failed_total", "raises", "1", "default"] == 1
    assert found["hami_node_waiting", "any", "1", "default"] == 0


def write(folder, name: str, word: str, backend: str = "TestSay") -> None:
    (folder / f"{name}.toml").write_text(f'[{name}]\nbackend = "{backend}"\nword = "{word}"\n')


def answers(rounder: AllRounder) -> dict[str, str]:
    return {name: answer["result"] for name, answer in rounder.infer({"data": 1}).items()}


def test_a_folder_that_changes_is_reloaded_model_by_model(tmp_path, caplog):
    write(tmp_path, "a", "one")
    write(tmp_path, "b", "one")
    serving = Serving(tmp_path)
    serving.start()
    watcher = Watcher(serving, tmp_path)
    assert not watcher.look()
    before = serving.rounder["b"].handles
    write(tmp_path, "a", "another")
    write(tmp_path, "c", "new")
    assert watcher.look()
    assert answers(serving.rounder) == {"a": "another on cpu", "b": "one on cpu", "c": "new on cpu"}
    assert serving.rounder["b"].handles == before
    (tmp_path / "b.toml").unlink()
    (tmp_path / "a.toml").write_text("[a\n")
    write(tmp_path, "c", "changed")
    with caplog.at_level(logging.ERROR, "hami.serve"):
        assert watcher.look()
    assert answers(serving.rounder) == {"a": "another on cpu", "c": "changed on cpu"}
    assert [record.getMessage().startswith("a is not reloaded: ") for record in caplog.records] == [True]
    assert not watcher.look()
    serving.stop()


def test_the_thread_of_a_watcher_ends(tmp_path):
    write(tmp_path, "a", "one")
    serving = Serving(tmp_path)
    serving.start()
    with Watcher(serving, tmp_path):
        (thread,) = (each for each in threading.enumerate() if each.name == "hami-serve-watch")
    assert not thread.is_alive()
    serving.stop()


def test_a_file_that_changes_while_models_load_is_found_by_the_next_look(tmp_path):
    for turn in ("first", "second"):
        (tmp_path / "a.toml").write_text(f'[a]\nbackend = "TestWrites"\npath = "{tmp_path}/{turn}.toml"\n')
        if turn == "first":
            serving = Serving(tmp_path)
            watcher = Watcher(serving, tmp_path)
            serving.start()
        else:
            assert watcher.look()
        assert turn not in serving.rounder
        assert watcher.look()
        assert turn in serving.rounder
    assert not watcher.look()
    serving.stop()


def test_a_folder_that_disappears_while_it_is_watched_changes_nothing(tmp_path, caplog):
    folder = tmp_path / "models"
    folder.mkdir()
    write(folder, "a", "one")
    serving = Serving(folder)
    watcher = Watcher(serving, folder)
    serving.start()
    (folder / "a.toml").unlink()
    folder.rmdir()
    with caplog.at_level(logging.ERROR, "hami.serve"):
        assert watcher.look()
    assert answers(serving.rounder) == {"a": "one on cpu"}
    assert len(caplog.records) == 1
    serving.stop()


def test_update_rebuilds_a_model_whose_file_has_changed(tmp_path):
    write(tmp_path, "a", "one")
    with AllRounder(tmp_path) as rounder:
        before = rounder["a"].handles
        rounder.update(tmp_path)
        assert rounder["a"].handles == before
        write(tmp_path, "a", "two")
        rounder.update(tmp_path)
        assert answers(rounder) == {"a": "two on cpu"}


def test_a_client_that_loads_a_model_gets_its_new_weights(start, tmp_path):
    """The description has not changed; the file that it names has."""
    (tmp_path / "weights").write_text("old")
    write(tmp_path, "a", str(tmp_path / "weights"), backend="TestReads")
    server = start(tmp_path, allow_control=True)
    request = {"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]}
    found = []
    for weights in ("old", "new"):
        (tmp_path / "weights").write_text(weights)
        assert server.post("/v2/repository/models/a/load", {}) == (200, {})
        found.append(server.post("/v2/models/a/infer", request)[1]["outputs"][0]["data"])
    assert found == [["old"], ["new"]]


@pytest.fixture
def watched(tmp_path, start):
    """watched(folder) starts a server for a folder; returns functions that look at it, and ask a model."""

    def begin(folder: Path):
        server = start(folder)
        server.serving.start()
        request = {"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]}

        def ask(name: str) -> str:
            status, answer = server.post(f"/v2/models/{name}/infer", request)
            return answer["outputs"][0]["data"][0] if status == 200 else str(status)

        return Watcher(server.serving, folder).look, ask

    return begin


def test_a_file_of_the_same_size_and_time_is_a_changed_file(tmp_path, watched):
    write(tmp_path, "a", "one")
    look, ask = watched(tmp_path)
    before = (tmp_path / "a.toml").stat()
    write(tmp_path, "a", "two")
    os.utime(tmp_path / "a.toml", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert look()
    assert ask("a") == "two on cpu"
    assert not look()


def test_a_config_map_of_kubernetes_is_followed_when_its_link_moves(tmp_path, watched):
    """Files and folders of components are links through `..data`, which is replaced by a rename."""
    folder = tmp_path / "models"
    for number, word in enumerate(("one", "two")):
        version = folder / f"..{number}"
        (version / "many").mkdir(parents=True)
        write(version, "single", word)
        write(version / "many", "1", word)
        (folder / "..next").symlink_to(f"..{number}")
        (folder / "..next").replace(folder / "..data")
        if number == 0:
            (folder / "single.toml").symlink_to("..data/single.toml")
            (folder / "many").symlink_to("..data/many")
            (folder / "many" / "loop").symlink_to("..")
            look, ask = watched(folder)
        else:
            assert look()
        assert (ask("single"), ask("many")) == (f"{word} on cpu", f"{word} on cpu")
    assert not look()


def test_a_description_that_is_wrong_stops_no_other_component(tmp_path, watched, caplog):
    for name in ("good", "bad", "both"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "1", "one")
    look, ask = watched(tmp_path)
    write(tmp_path / "good", "1", "two")
    write(tmp_path, "both", "two")
    write(tmp_path, "wrong name", "two")
    (tmp_path / "bad" / "model.toml").write_text("[defa")
    with caplog.at_level(logging.ERROR, "hami.serve"):
        assert look()
    assert [ask(name) for name in ("good", "bad", "both")] == ["two on cpu", "one on cpu", "one on cpu"]
    reported = sorted(record.getMessage().partition(" is not reloaded")[0] for record in caplog.records)
    assert reported == ["bad", "both", "wrong name"]


def test_a_table_that_is_wrong_stops_no_other_component(tmp_path, watched, caplog):
    text = '[good]\nbackend = "TestSay"\nword = "one"\n[bad]\nsource = {backend = "TestSay", word = "one"}\n'
    (tmp_path / "models.toml").write_text(text)
    look, ask = watched(tmp_path)
    (tmp_path / "models.toml").write_text(text.replace('"one"\n[', '"two"\n[') + 'memory = "much"\n')
    with caplog.at_level(logging.ERROR, "hami.serve"):
        assert look()
    assert [ask(name) for name in ("good", "bad")] == ["two on cpu", "one on cpu"]
    (record,) = caplog.records
    assert 'bad is not reloaded: component "bad": memory is an int' in record.getMessage()


def test_a_touched_file_is_loaded_again_with_its_new_weights_and_a_copy_is_not(tmp_path, watched):
    (tmp_path / "weights").write_text("old")
    write(tmp_path, "a", str(tmp_path / "weights"), backend="TestReads")
    write(tmp_path, "b", "one")
    look, ask = watched(tmp_path)
    (tmp_path / "weights").write_text("new")
    assert not look()
    (tmp_path / "a.toml").touch()
    assert look()
    assert ask("a") == "new"
    (tmp_path / "weights").write_text("newest")
    (tmp_path / "copy").write_bytes((tmp_path / "a.toml").read_bytes())
    (tmp_path / "copy").replace(tmp_path / "a.toml")
    assert look()
    assert ask("a") == "new"


def test_a_model_that_hangs_while_it_is_reloaded_delays_no_other(tmp_path, watched):
    write(tmp_path, "a", "one")
    write(tmp_path, "b", "one")
    server_look, ask = watched(tmp_path)
    fifo = tmp_path / "weights"
    os.mkfifo(fifo)
    write(tmp_path, "a", str(fifo), backend="TestReads")  # until the test writes
    watcher = server_look.__self__
    with watcher:
        write(tmp_path, "b", "two")
        until(lambda: ask("b") == "two on cpu")
        write(tmp_path, "b", "three")
        until(lambda: ask("b") == "three on cpu")
        assert ask("a") == "one on cpu"
        fifo.write_text("new")
        until(lambda: ask("a") == "new")


def until(condition) -> None:
    """Wait until a condition holds that no event tells."""
    for _ in range(6000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError(condition)
