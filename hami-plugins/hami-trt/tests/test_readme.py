"""The examples of the README are valid, and its tables are complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import hami
import models
import pytest
from building import needs_rtx

from hami_trt import plugin

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


class Registry:
    def __init__(self) -> None:
        self.targets: dict[str, str] = {}

    def add(self, name: str, target: str) -> None:
        self.targets[name] = target

    def generate(self, name: str, expression: str) -> None:
        self.targets[name] = ""


def test_the_example_needs_only_a_gpu(tmp_path, monkeypatch):
    """Its keys are known and its values are valid: the first error is the missing device."""
    monkeypatch.chdir(tmp_path)
    (config,) = blocks("toml")
    Path("pipeline.toml").write_text(config.partition("# pipeline.toml\n")[2])
    Path("resnet18_-1x3x224x224.onnx").touch()
    monkeypatch.setattr("hami_cuda.device.devices", list)
    with pytest.raises(hami.Error, match=r'device "cuda:0" is not available|the NVIDIA driver is not installed'):
        hami.pipe("pipeline.toml")


def test_the_expression_of_tensorrt_tensor_is_documented():
    assert plugin.TENSORRT_TENSOR in "".join(README.read_text().split())


def test_every_backend_and_every_parameter_is_documented():
    registry = Registry()
    plugin.hami_register(registry)
    text, infos = README.read_text(), hami.backends(load=True)
    cells = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    names = {name for cell in cells for name in re.findall(r"`([^`]*)`", cell)}
    for name in registry.targets:
        assert name in names
        for parameter in infos[name].params or ():
            assert parameter["name"] in names, (name, parameter["name"])


@needs_rtx
def test_the_commands_print_the_documented_output(tmp_path):
    models.convolution(tmp_path / "model.onnx")
    (text,) = blocks("console")
    for part in text.split("$ ")[1:]:
        command, _, expected = part.partition("\n")
        done = subprocess.run(
            [sys.executable, "-m", *command.split(), "--library", "tensorrt-rtx"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert re.sub(r"\d+", "N", done.stdout) == re.sub(r"\d+", "N", expected), done.stderr
