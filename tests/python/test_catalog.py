"""The snapshot of the catalogue in the core, which messages use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hami
import pytest
from hami._plugins import catalog

GENERATOR = Path(__file__).parents[2] / "ci" / "catalog.py"


def test_the_snapshot_is_not_stale() -> None:
    done = subprocess.run([sys.executable, GENERATOR, "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_first_party_plugin_is_in_the_snapshot() -> None:
    ours = catalog.first_party()
    assert {"hami-image", "hami-model-check", "hami-ocr", "hami-onnx", "hami-openvino"} <= ours.plugins.keys()
    assert {"hami-accel", "hami-build", "hami-cuda", "hami-serve", "hami-torch", "hami-trt"} <= ours.plugins.keys()
    assert ours.owners("backends")["TensorrtTensor"] == ["hami-trt"]
    assert ours.owners("pipelines") == {
        "classify-text": ["hami-text"],
        "count-heads": ["hami-vision"],
        "count-people": ["hami-vision"],
        "detect": ["hami-vision"],
        "embed": ["hami-text"],
        "entities": ["hami-text"],
        "ocr": ["hami-ocr"],
        "rerank": ["hami-text"],
        "segment": ["hami-vision"],
        "track": ["hami-vision"],
    }
    assert ours.owners("devices") == {"cuda": ["hami-cuda"]}


def test_a_damaged_snapshot_leaves_everything_else_working(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "catalog.json"
    file.write_text('{"format"')
    monkeypatch.setattr(catalog, "SNAPSHOT", file)
    catalog._load_local.cache_clear()
    try:
        assert catalog.first_party() == ("", {})
        with pytest.raises(hami.BackendNotFound, match='"TensorrtTensor" is neither'):
            hami.pipe("TensorrtTensor")
    finally:
        catalog._load_local.cache_clear()


def test_messages_never_open_a_connection() -> None:
    assert catalog.load_local({"HAMI_CATALOG": "http://127.0.0.1:9/"}).source == str(catalog.SNAPSHOT)
