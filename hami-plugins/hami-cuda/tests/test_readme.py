"""The example of the README runs as written, and its table is complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hami
import pytest
from test_decode_tensor import jpeg, nvjpeg

np = pytest.importorskip("numpy", reason="numpy is not installed")
README = Path(__file__).resolve().parent.parent / "README.md"
__all__ = ["nvjpeg"]  # a fixture


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.usefixtures("fake")
def test_the_example_runs(tmp_path, monkeypatch, nvjpeg):
    class Torch:
        @staticmethod
        def from_dlpack(tensor):
            return tensor.shape

    monkeypatch.chdir(tmp_path)
    (config,), (code, _) = blocks("toml"), blocks("py")
    Path("pipeline.toml").write_text(config.replace("max = 16", f"library = '{nvjpeg._name}'\nmax = 16"))
    names = {"hami": hami, "torch": Torch, "jpeg": jpeg(30, 20)}
    exec(compile(code, str(README), "exec"), names)
    assert names["tensor"] == (1, 3, 224, 224)


@pytest.mark.usefixtures("fake")
def test_the_backend_in_python_runs():
    _, code = blocks("py")
    calls: list[tuple[int, int, int]] = []
    names: dict[str, Any] = {"hami": hami, "launch": lambda *given: calls.append(given)}
    exec(compile(code, str(README), "exec"), names)
    hami.register("ReadmeInfer")(names["Infer"])
    with hami.pipe("S[GpuTensor,ReadmeInfer,SyncTensor]") as pipe:
        result = pipe({"data": np.zeros(12)})["result"]
    assert (result.shape, result.dtype, result.device) == ((1, 1000), "float32", "cuda:0")
    ((image, scores, stream),) = calls
    assert image
    assert scores
    assert stream


def test_the_table_lists_every_backend():
    cells = [line.split("|")[1] for line in README.read_text().splitlines() if line.startswith("| `")]
    listed = set(re.findall(r"[A-Z]\w+", " ".join(cells)))
    found = {name.rpartition(":")[2] for name, info in hami.backends(load=True).items() if info.owner == "hami-cuda"}
    assert found <= listed
