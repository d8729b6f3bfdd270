"""Prometheus metrics, and folders that change while they are served."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import hami
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
