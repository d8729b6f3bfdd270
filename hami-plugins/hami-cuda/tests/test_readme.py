"""The example of the README runs as written, and its table is complete."""

from __future__ import annotations

import re
from pathlib import Path

import hami
import pytest
from test_decode_tensor import jpeg, nvjpeg

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
    (config,), (code,) = blocks("toml"), blocks("py")
    Path("pipeline.toml").write_text(config.replace("max = 16", f"library = '{nvjpeg._name}'\nmax = 16"))
    names = {"hami": hami, "torch": Torch, "jpeg": jpeg(30, 20)}
    exec(compile(code, str(README), "exec"), names)
    assert names["tensor"] == (1, 3, 224, 224)


def test_the_table_lists_every_backend():
    cells = [line.split("|")[1] for line in README.read_text().splitlines() if line.startswith("| `")]
    listed = set(re.findall(r"[A-Z]\w+", " ".join(cells)))
    found = {name.rpartition(":")[2] for name, info in hami.backends(load=True).items() if info.owner == "hami-cuda"}
    assert found <= listed
