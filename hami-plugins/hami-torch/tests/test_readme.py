"""The code of the README runs as written, and its tables name every backend and parameter."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import hami
import torch

from hami_torch import plugin

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.mean((2, 3)))


def test_the_first_example_classifies_a_photo(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (config,), (code, *_) = blocks("toml"), blocks("python")
    Path("pipeline.toml").write_text(config.partition("# pipeline.toml\n")[2])
    dims = {"x": {0: torch.export.Dim("n", max=32)}}
    program = torch.export.export(Classifier(), (torch.zeros(2, 3, 224, 224),), dynamic_shapes=dims)
    torch.export.save(program, "classifier.pt2")
    exec(compile(code, str(README), "exec"), {})
    assert capsys.readouterr().out == "torch.Size([1, 1000])\n"


def test_the_custom_backend_runs():
    *_, code = blocks("python")
    exec(compile(code, str(README), "exec"), {})
    with hami.pipe({"backend": "Halve", "device": "cpu"}) as pipe:
        assert pipe({"data": torch.tensor([3.0])})["result"].tolist() == [1.5]


def test_tensordicts_become_requests():
    _, first, second, _ = blocks("python")
    exec(compile(first + second, str(README), "exec"), {})


class Registry(dict):
    add = dict.__setitem__


def test_every_backend_and_every_parameter_is_documented():
    registry = Registry()
    plugin.hami_register(registry)
    text = README.read_text()
    for name, target in registry.items():
        module, _, attribute = target.partition(":")
        assert re.search(rf"`(hami-torch::)?{name}[`\[]|\[{name}|, {name}\]`", text), name
        for parameter in getattr(import_module(module), attribute).__annotations__:
            assert parameter.startswith("_") or f"`{parameter}`" in text, (name, parameter)
